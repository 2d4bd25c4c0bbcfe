/* Prints the Gflop/s of a product of 256 x 256 x 256 in one thread of OpenBLAS, or fails if the
   library is not there. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 256, ROW_MAJOR = 101, PLAIN = 111 };

typedef void gemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);

static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(void) {
	static float a[N * N], b[N * N], c[N * N];
	const char *names[] = {"libopenblas.so.0", "libopenblas.so"};
	void *lib = NULL;
	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	for (int i = 0; i < 2 && !lib; i++)
		lib = dlopen(names[i], RTLD_NOW);
	gemm *sgemm = lib ? (gemm *)dlsym(lib, "cblas_sgemm") : NULL;
	if (!sgemm)
		return 1;
	for (int i = 0; i < N * N; i++)
		a[i] = b[i] = (float)rand() / RAND_MAX - 0.5f;
	double least = 1e9;
	for (int batch = 0; batch < 60; batch++) {
		double began = seconds();
		for (int i = 0; i < 100; i++)
			sgemm(ROW_MAJOR, PLAIN, PLAIN, N, N, N, 1, a, N, b, N, 0, c, N);
		double took = (seconds() - began) / 100;
		least = took < least ? took : least;
	}
	printf("%.4g\n", 2.0 * N * N * N / least / 1e9);
	return 0;
}
