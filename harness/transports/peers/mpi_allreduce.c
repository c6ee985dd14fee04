/* MPI_Allreduce as kolo times its own: barrier, call, the longest of all ranks; median.
 *
 * usage: mpi_allreduce WARMUP REPETITIONS SIZE...      sizes in bytes, of f32, sum, in place
 * prints one line per size: ranks,size_bytes,time_us_p50,wrong
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Small integers: every order of summation gives the same. */
static float input(int rank, size_t index) { return (float)((index * 7 + (size_t)rank * 13) % 1000); }

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4) {
        if (rank == 0) fprintf(stderr, "usage: %s WARMUP REPETITIONS SIZE...\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int warmup = atoi(argv[1]), repetitions = atoi(argv[2]);
    double *times = malloc(sizeof(double) * (size_t)repetitions);
    for (int arg = 3; arg < argc; arg++) {
        size_t count = strtoull(argv[arg], NULL, 10) / sizeof(float);
        float *data = malloc(count * sizeof(float) + 1);
        for (size_t i = 0; i < count; i++) data[i] = input(rank, i);
        for (int repetition = -warmup; repetition < repetitions; repetition++) {
            if (repetition == repetitions - 1)
                for (size_t i = 0; i < count; i++) data[i] = input(rank, i);
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            double own = MPI_Wtime() - start, longest;
            MPI_Reduce(&own, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            if (repetition >= 0) times[repetition] = longest * 1e6;
        }
        long wrong = 0, all;
        for (size_t i = 0; i < count; i++) {
            float sum = 0;
            for (int other = 0; other < ranks; other++) sum += input(other, i);
            wrong += data[i] != sum;
        }
        MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            qsort(times, (size_t)repetitions, sizeof(double), ascending);
            double median = (times[(repetitions - 1) / 2] + times[repetitions / 2]) / 2;
            printf("%d,%zu,%.3f,%ld\n", ranks, count * sizeof(float), median, all);
            fflush(stdout);
        }
        free(data);
    }
    free(times);
    MPI_Finalize();
    return 0;
}
