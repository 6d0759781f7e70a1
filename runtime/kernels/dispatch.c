/* dispatch.c - which set of CPU kernels this machine runs. */
#include "runtime/device/cpu/cpu.h"

#if defined(__x86_64__)
#define PL_CPU_LEVELS(X)                                                                           \
    X(v4, "x86-64-v4")                                                                             \
    X(v3, "x86-64-v3")                                                                             \
    X(v2, "x86-64-v2")
#else
#define PL_CPU_LEVELS(X) X(base, "base")
#endif

#define X(level, name) extern const pl_kernel_fn pl_cpu_kernels_##level[PL_OP_COUNT];
PL_CPU_LEVELS(X)
#undef X

static bool is_supported(const char *level) {
#if defined(__x86_64__)
    /* The features of each level that the compiler may use for these loops; a machine has all of a
     * level or is treated as the one below (x86-64 psABI, "Microarchitecture levels"). */
    __builtin_cpu_init();
    bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") &&
              __builtin_cpu_supports("popcnt");
    bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    char digit = level[sizeof "x86-64-v" - 1];
    return digit == '4' ? v4 : digit == '3' ? v3 : v2;
#else
    (void)level;
    return true;
#endif
}

uint32_t pl_cpu_levels(struct pl_cpu_level *out, uint32_t cap) {
    static const struct pl_cpu_level all[] = {
#define X(level, name) {name, pl_cpu_kernels_##level},
        PL_CPU_LEVELS(X)
#undef X
    };
    uint32_t n = 0;
    for (uint32_t i = 0; i < sizeof all / sizeof *all && n < cap; i++)
        if (is_supported(all[i].name)) out[n++] = all[i];
    return n;
}
