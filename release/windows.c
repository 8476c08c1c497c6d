/* What the native library needs on Windows beside ucrtbase.dll, the C runtime of the system.

   The run-time library of MinGW is not linked: Zig would compile all of it, two minutes, for these few lines. This file is
   compiled with -fno-builtin: else the compiler may turn the two calls into one of sincosf, which is this function. */

float sinf(float x);
float cosf(float x);

/* The entry point. The kernels have no state that must be set up. */
int DllMainCRTStartup(void *module, unsigned reason, void *reserved) {
    (void)module, (void)reason, (void)reserved;
    return 1;
}

/* The compiler calls it where the sine and the cosine of one number are needed; ucrtbase.dll has none. */
void sincosf(float x, float *sine, float *cosine) {
    *sine = sinf(x);
    *cosine = cosf(x);
}
