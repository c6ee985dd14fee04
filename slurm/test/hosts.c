// Every rank says its host; a sum over all ranks goes across the network and is checked.
#include <mpi.h>
#include <stdio.h>

enum { COUNT = 1 << 18 };
static int mine[COUNT], sum[COUNT];

int main(int count, char **arguments) {
    int rank, ranks, length, wrong = 0;
    char host[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_processor_name(host, &length);
    for (int i = 0; i < COUNT; i++) mine[i] = rank + i;
    MPI_Allreduce(mine, sum, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) wrong += sum[i] != ranks * i + ranks * (ranks - 1) / 2;
    printf("%s %d %d\n", host, ranks, wrong);
    fflush(stdout);
    MPI_Finalize();
    return wrong != 0;
}
