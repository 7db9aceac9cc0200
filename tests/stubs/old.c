/* A driver from before the functions that are asked for; NVML by its first names. */
int nvmlInit(void) { return 9; }
