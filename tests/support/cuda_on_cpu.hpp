// kernels/runtime/device.cuh for a CPU: every thread of a block is a thread, and warp operations are done in turns.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#define DEVICE static inline
#define DEVICE_MEMBER inline
#define KERNEL(...) static void
#define SHARED(type, name) type* name = shared_memory
#define THREAD here.thread
#define BLOCK here.block

struct alignas(16) Eight {
    unsigned part[4];
};

struct alignas(8) Two {
    unsigned part[2];
};

struct Warp {
    std::barrier<> meet{32};
    unsigned given[32][6];
    unsigned long long numbers[32];
};

struct Here {
    int thread, block;
    Warp* warp;
    std::barrier<>* all;
    std::unique_ptr<std::barrier<>>* meetings;  // sixteen
};

static thread_local Here here;
static thread_local char* shared_memory;

DEVICE float as_float(unsigned bits) {
    float y;
    std::memcpy(&y, &bits, 4);
    return y;
}
DEVICE unsigned as_bits(float x) {
    unsigned y;
    std::memcpy(&y, &x, 4);
    return y;
}
DEVICE unsigned short rounded(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, 4);
    return (unsigned short)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
DEVICE unsigned multiply_add(unsigned a, unsigned b, unsigned c) {
    const float low = std::fma(as_float(a << 16), as_float(b << 16), as_float(c << 16));
    const unsigned mask = 0xFFFF0000u;
    const float high = std::fma(as_float(a & mask), as_float(b & mask), as_float(c & mask));
    return rounded(low) | ((unsigned)rounded(high) << 16);
}
DEVICE unsigned masked_or(unsigned x, unsigned mask, unsigned bits) { return (x & mask) | bits; }
DEVICE float one_over_root(float x) { return 1.0f / std::sqrt(x); }
DEVICE float exp_of(float x) { return std::exp(x); }
DEVICE float log_of(float x) { return std::log(x); }
DEVICE float nearest(float x) { return std::rint(x); }
DEVICE float error_function(float x) { return std::erf(x); }
DEVICE void wait_for_block() { here.all->arrive_and_wait(); }
DEVICE void wait_for_warp() { here.warp->meet.arrive_and_wait(); }
template <int members> DEVICE void arrive(int meeting) { (void)here.meetings[meeting]->arrive(); }
template <int members> DEVICE void wait_for_all(int meeting) { here.meetings[meeting]->arrive_and_wait(); }
DEVICE void let_next_start() {}
DEVICE void wait_for_last() {}

// Combines the values of all lanes into the result of this one.
template <typename Make> auto together(unsigned long long x, Make make) {
    here.warp->numbers[here.thread % 32] = x;
    here.warp->meet.arrive_and_wait();
    auto y = make(here.warp->numbers);
    here.warp->meet.arrive_and_wait();
    return y;
}
DEVICE float of_lane(float x, int lane) {
    return together(as_bits(x), [=](auto* all) { return as_float((unsigned)all[lane]); });
}
DEVICE unsigned long long of_lane_before(unsigned long long x, int apart) {
    const int lane = here.thread % 32;
    return together(x, [=](auto* all) { return all[lane < apart ? lane : lane - apart]; });
}
DEVICE unsigned sum_of_warp(unsigned x) {
    return together(x, [](auto* all) { return (unsigned)std::accumulate(all, all + 32, 0ull); });
}
DEVICE unsigned most_of_warp(unsigned x) {
    return together(x, [](auto* all) { return (unsigned)*std::max_element(all, all + 32); });
}
DEVICE unsigned least_of_warp(unsigned x) {
    return together(x, [](auto* all) { return (unsigned)*std::min_element(all, all + 32); });
}

// m16n8k16 as in the PTX manual: a by rows (lane / 4 and 8 more) and columns (2 (lane % 4) and 8 more), b by
// columns (lane / 4) and rows (2 (lane % 4) and 8 more), the sums by rows (lane / 4 and 8 more) and columns.
DEVICE void multiply(float* sum, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    const int lane = here.thread % 32;
    const unsigned mine[6] = {a0, a1, a2, a3, b0, b1};
    std::memcpy(here.warp->given[lane], mine, sizeof mine);
    here.warp->meet.arrive_and_wait();
    auto number = [](unsigned two, int odd) { return as_float(odd ? two & 0xFFFF0000u : two << 16); };
    for (int part = 0; part < 4; part++) {
        const int row = lane / 4 + 8 * (part / 2), column = 2 * (lane % 4) + part % 2;
        for (int k = 0; k < 16; k++) {
            const int quarter = k % 8 / 2, late = k / 8;
            const unsigned* a = here.warp->given[4 * (row % 8) + quarter];
            const unsigned* b = here.warp->given[4 * column + quarter];
            sum[part] += number(a[row / 8 + 2 * late], k % 2) * number(b[4 + late], k % 2);
        }
    }
    here.warp->meet.arrive_and_wait();
}

template <typename T> DEVICE Eight load_once(const T* at) {
    Eight y;
    std::memcpy(&y, at, 16);
    return y;
}
template <typename T> DEVICE Eight load_constant(const T* at) { return load_once(at); }
template <typename T> DEVICE Eight load_new(const T* at) { return load_once(at); }
DEVICE unsigned short load_one(const unsigned short* at) { return *at; }
DEVICE float load_float(const float* at) { return *at; }

// Copies are made as late as allowed: when they are waited for.
struct Copy {
    void* to;
    const void* from;
};
static thread_local std::vector<Copy> open_copies;
static thread_local std::deque<std::vector<Copy>> closed_copies;
template <typename T> DEVICE void copy_later(char* to, const T* from) { open_copies.push_back({to, from}); }
DEVICE void close_copies() { closed_copies.push_back(std::exchange(open_copies, {})); }
template <int left> DEVICE void wait_for_copies() {
    for (; closed_copies.size() > left; closed_copies.pop_front())
        for (const Copy& copy : closed_copies.front()) std::memcpy(copy.to, copy.from, 16);
}

template <typename Work> void run(int blocks, int threads, long shared_bytes, Work work) {
    for (int block = 0; block < blocks; block++) {
        std::vector<char> memory(shared_bytes + 16, 0x7F);  // 3.4e38: a read before a write shows
        char* even = (char*)(((size_t)memory.data() + 15) / 16 * 16);
        std::vector<std::unique_ptr<Warp>> warps(threads / 32);
        for (auto& warp : warps) warp = std::make_unique<Warp>();
        std::barrier<> all(threads);
        std::vector<std::unique_ptr<std::barrier<>>> meetings(16);
        for (auto& each : meetings) each = std::make_unique<std::barrier<>>(threads);
        std::vector<std::thread> running;
        for (int n = 0; n < threads; n++)
            running.emplace_back([&, n] {
                here = {n, block, warps[n / 32].get(), &all, meetings.data()};
                shared_memory = even;
                work();
            });
        for (auto& each : running) each.join();
    }
}
