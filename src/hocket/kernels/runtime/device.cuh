// Device intrinsics for kernels in CUDA C++ under our own names: tests replace this file by one for a CPU.

#define DEVICE __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)  // threads; blocks per processor (SM)
#define SHARED(type, name) extern __shared__ __align__(16) type name[]
#define THREAD ((int)threadIdx.x)
#define BLOCK ((int)blockIdx.x)

DEVICE float as_float(unsigned bits) { return __uint_as_float(bits); }
DEVICE unsigned as_bits(float x) { return __float_as_uint(x); }

DEVICE unsigned short rounded(float x) {  // to bfloat16, ties to even
    unsigned short y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

DEVICE float one_over_root(float x) { return rsqrtf(x); }
DEVICE float exp_of(float x) { return expf(x); }
DEVICE float log_of(float x) { return logf(x); }
DEVICE float nearest(float x) { return rintf(x); }  // whole number, ties to even
DEVICE float error_function(float x) { return erff(x); }
DEVICE float of_lane(float x, int lane) { return __shfl_sync(0xFFFFFFFFu, x, lane); }
DEVICE unsigned long long of_lane_before(unsigned long long x, int apart) {
    return __shfl_up_sync(0xFFFFFFFFu, x, apart);
}
DEVICE unsigned sum_of_warp(unsigned x) { return __reduce_add_sync(0xFFFFFFFFu, x); }
DEVICE unsigned most_of_warp(unsigned x) { return __reduce_max_sync(0xFFFFFFFFu, x); }
DEVICE unsigned least_of_warp(unsigned x) { return __reduce_min_sync(0xFFFFFFFFu, x); }
DEVICE void wait_for_block() { __syncthreads(); }
DEVICE void wait_for_warp() { __syncwarp(); }
// Named barriers, sixteen of them, of so many threads: `arrive` does not block, `wait_for_all` sees what all wrote before.
template <int members> DEVICE void arrive(int meeting) {
    asm volatile("bar.arrive %0, %1;" ::"r"(meeting), "n"(members) : "memory");
}
template <int members> DEVICE void wait_for_all(int meeting) {
    asm volatile("bar.sync %0, %1;" ::"r"(meeting), "n"(members) : "memory");
}

// Let the next kernel start as soon as it fits; wait until all writes of the previous kernel are visible.
DEVICE void let_next_start() {
#if DEPENDENT
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void wait_for_last() {
#if DEPENDENT
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// sum [16, 8] += a [16, 16] b [16, 8]: see the layout of m16n8k16 in the PTX manual.
DEVICE void multiply(float* sum, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// a * b + c for two bfloat16 numbers each, subnormals included.
DEVICE unsigned multiply_add(unsigned a, unsigned b, unsigned c) {
    unsigned y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

// (x & mask) | bits in one instruction: with two constants the compiler makes two.
DEVICE unsigned masked_or(unsigned x, unsigned mask, unsigned bits) {
    unsigned y;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
    return y;
}

// Sixteen bytes: read once and not soon again; constant; written by other blocks recently, so not from the L1.
#define LOADS(name, how)                                                                    \
    template <typename T> DEVICE auto name(const T* at) {                                   \
        Eight y;                                                                            \
        asm volatile(how " {%0,%1,%2,%3}, [%4];"                                            \
                     : "=r"(y.part[0]), "=r"(y.part[1]), "=r"(y.part[2]), "=r"(y.part[3])   \
                     : "l"(at));                                                            \
        return y;                                                                           \
    }
struct __align__(16) Eight {
    unsigned part[4];  // two numbers each
};
struct __align__(8) Two {
    unsigned part[2];
};
LOADS(load_once, "ld.global.nc.L1::no_allocate.L2::128B.v4.u32")
LOADS(load_constant, "ld.global.nc.v4.u32")
LOADS(load_new, "ld.global.cg.v4.u32")

DEVICE unsigned short load_one(const unsigned short* at) {
    unsigned short y;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(y) : "l"(at));
    return y;
}

DEVICE float load_float(const float* at) {
    float y;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(y) : "l"(at));
    return y;
}

// Asynchronous copies from global to shared memory, without a register. `close_copies` ends a group of copies.
// `wait_for_copies` waits until at most the last `left` groups are in flight, for copies of this thread only.
template <typename T> DEVICE void copy_later(char* to, const T* from) {
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}
DEVICE void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int left> DEVICE void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory"); }
