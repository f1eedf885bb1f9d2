/* The kernels of matvec_launch.cuh for activations of 16 bits. */
#include "backend/cuda/kernels/matvec_launch.cuh"

void launch_fine(const struct queue *q, const matvec_product &p)
{
    launch_product<FINE>(q, p);
}
