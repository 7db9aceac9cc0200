/* A libcudart that answers; it finds no GPU, and says so without touching the count. */
int cudaRuntimeGetVersion(int *version) {
    *version = 99080;
    return 0;
}

int cudaDriverGetVersion(int *version) {
    *version = 0;
    return 0;
}

int cudaGetDeviceCount(int *count) {
    (void)count;
    return 35;
}
