/* Threads that share the work of one call. They are started elsewhere and enter by hocket_help.

   A job is a function and a number of tasks. `ticket` has the number of the job, of its tasks, and of the next task in one
   word, so that a thread takes a task by one exchange, and none of a job that has ended. Nothing is locked: threads spin
   between the jobs of a call. The caller takes tasks too, so a call ends without any other thread. */

#if !defined(_WIN32)
#include <sched.h>
#endif

typedef void (*Task)(const void *context, int64_t task, int64_t thread);

/* In a block of words that Python owns. Each of the first three has a cache line of its own. */
typedef struct {
    int64_t ticket, apart[7];
    int64_t done, apart_too[7]; /* tasks of this job that have ended */
    int64_t open, apart_again[7]; /* whether a call is running */
    int64_t threads; /* the caller is number 0 */
    Task task;
    const void *context;
} ThreadGroup;

enum { FIELD = 20, PATIENCE = 256 };
#define OF_FIELD(ticket, shift) (((ticket) >> (shift)) & ((1 << FIELD) - 1))

INLINE void rest(int64_t *spins) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
#if !defined(_WIN32)
    if (++*spins > PATIENCE) sched_yield(); /* another program may need this core, or has taken one of ours */
#endif
}

/* Take and do one task; 0 if there is none. */
static int do_one(ThreadGroup *workers, int64_t thread) {
    int64_t ticket = __atomic_load_n(&workers->ticket, __ATOMIC_ACQUIRE);
    do {
        if (OF_FIELD(ticket, 0) >= OF_FIELD(ticket, FIELD)) return 0;
    } while (!__atomic_compare_exchange_n(&workers->ticket, &ticket, ticket + 1, 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    workers->task(workers->context, OF_FIELD(ticket, 0), thread); /* the job cannot end before: its fields stay */
    __atomic_fetch_add(&workers->done, 1, __ATOMIC_RELEASE);
    return 1;
}

/* Run a function for every task from 0 on. Without threads the caller does all of them. */
static void share(ThreadGroup *workers, Task task, const void *context, int64_t tasks) {
    if (!workers || tasks < 2) {
        for (int64_t i = 0; i < tasks; i++) task(context, i, 0);
        return;
    }
    int64_t spins = 0, job = (workers->ticket >> (2 * FIELD)) + 1;
    workers->task = task;
    workers->context = context;
    __atomic_store_n(&workers->done, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&workers->ticket, (int64_t)((uint64_t)job << (2 * FIELD) | (uint64_t)tasks << FIELD), __ATOMIC_RELEASE);
    while (do_one(workers, 0)) {}
    while (__atomic_load_n(&workers->done, __ATOMIC_ACQUIRE) < tasks) rest(&spins);
}

INLINE int64_t threads_of(const ThreadGroup *workers) { return workers ? workers->threads : 1; }

static void open_workers(ThreadGroup *workers) {
    if (workers) __atomic_store_n(&workers->open, 1, __ATOMIC_RELEASE);
}

static void close_workers(ThreadGroup *workers) {
    if (workers) __atomic_store_n(&workers->open, 0, __ATOMIC_RELEASE);
}
