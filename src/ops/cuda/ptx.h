// Primitives beyond CUDA C++, each in its two forms: the PTX, and what the emulator does instead.
// This header and launch.h alone know which compiler there is (tools/check_kernels.py). docs/gpu.md
// says which primitive has run on which GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#ifndef __CUDACC__
#include "ops/cuda/emulation/primitives.h"
#endif

namespace tokamak::cuda::ptx {

#ifdef __CUDACC__
#define PTX_OR(emulated, ...) asm volatile(__VA_ARGS__)
// What instructions on shared memory take.
__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
#else
#define PTX_OR(emulated, ...) ::tokamak::cuda::emulation::emulated
#endif

// Waits at barrier `id` (1 to 15; __syncthreads is 0) for `count` threads, whole warps.
__device__ inline void SyncNamed(int id, int count) {
  PTX_OR(SyncNamed(id, count), "bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// cp.async: 16 bytes from global to shared memory, both ends aligned to them. The first `valid` are
// copied, the rest become zero. They are there once the calling thread has waited for them, and for
// other threads after a barrier.
__device__ inline void CopyAsync16(void* shared, const void* global, int valid = 16) {
  PTX_OR(CopyAsync16(shared, global, valid),
         "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)), "l"(global),
         "r"(valid)
         : "memory");
}
// Makes a group of the copies since the last one.
__device__ inline void CommitCopies() {
  PTX_OR(CommitCopies(), "cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of the thread's groups are under way.
template <int kPending>
__device__ inline void WaitForCopies() {
  PTX_OR(WaitForCopies(kPending), "cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// mbarrier, in shared memory. A phase ends when `count` threads have arrived and all bytes that
// they said to expect have come; phases are numbered from 0, and `parity` is a number's last bit.
// After InitBarrier others must be kept waiting by a barrier of the CTA.
__device__ inline void InitBarrier(uint64_t* barrier, int count) {
  PTX_OR(InitBarrier(barrier, count),
         "mbarrier.init.shared::cta.b64 [%0], %1;\n"
         "fence.mbarrier_init.release.cluster;" ::"r"(SharedAddress(barrier)),
         "r"(count)
         : "memory");
}
__device__ inline void Arrive(uint64_t* barrier) {
  PTX_OR(Arrive(barrier, 0),
         "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier))
         : "memory");
}
__device__ inline void ArriveAndExpect(uint64_t* barrier, int bytes) {
  PTX_OR(Arrive(barrier, bytes),
         "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
         "r"(bytes)
         : "memory");
}
__device__ inline void WaitForPhase(uint64_t* barrier, uint32_t parity) {
  PTX_OR(WaitForPhase(barrier, parity),
         "{\n"
         ".reg .pred done;\n"
         "AGAIN%=:\n"
         "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
         "@!done bra AGAIN%=;\n"
         "}" ::"r"(SharedAddress(barrier)),
         "r"(parity)
         : "memory");
}

// TMA without a tensor map: `bytes` % 16 == 0 from global to shared memory, both ends aligned
// to 16. One thread calls it, after it has said to the barrier that it expects them.
__device__ inline void CopyBulk(void* shared, const void* global, int bytes, uint64_t* barrier) {
  PTX_OR(
      CopyBulk(shared, global, bytes, barrier),
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// Clusters. A CTA must not end while others may still use its shared memory.
__device__ inline int ClusterRank() {
#ifdef __CUDACC__
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return emulation::ClusterRank();
#endif
}
__device__ inline void SyncCluster() {
  PTX_OR(SyncCluster(),
         "barrier.cluster.arrive.release.aligned;\n"
         "barrier.cluster.wait.acquire.aligned;" ::
             : "memory");
}
// Where the CTA of that rank has what lies at `shared` in this one's shared memory.
template <typename T>
__device__ inline T* MapShared(T* shared, int rank) {
#ifdef __CUDACC__
  T* other;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(shared), "r"(rank));
  return other;
#else
  return static_cast<T*>(emulation::MapShared(shared, rank));
#endif
}

// A barrier of all CTAs of a cooperative launch: each arrives at a counter in global memory, and
// waits until all have. What a CTA wrote before it arrived is seen by those that have waited.
__device__ inline void ArriveAtCounter(uint32_t* counter) {
  PTX_OR(ArriveAtCounter(counter), "red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter)
         : "memory");
}
__device__ inline void WaitForCounter(const uint32_t* counter, uint32_t value) {
  PTX_OR(WaitForCounter(counter, value),
         "{\n"
         ".reg .pred early;\n"
         ".reg .u32 seen;\n"
         "AGAIN%=:\n"
         "ld.acquire.gpu.global.u32 seen, [%0];\n"
         "setp.lt.u32 early, seen, %1;\n"
         "@early bra AGAIN%=;\n"
         "}" ::"l"(counter),
         "r"(value)
         : "memory");
}
// `round` counts the barrier's uses from 1 on; the counter was 0 before the first.
__device__ inline void SyncGrid(uint32_t* counter, uint32_t round) {
  __syncthreads();
  if (threadIdx.x == 0) {
    ArriveAtCounter(counter);
    WaitForCounter(counter, round * gridDim.x);
  }
  __syncthreads();
}

// ldmatrix and stmatrix: four 8 x 8 matrices of 16-bit elements, in shared memory. Lane l gives the
// address of row l % 8 of matrix l / 8, aligned to 16 bytes. fragments[i] are the elements of
// matrix i in row lane / 4 and columns lane % 4 * 2 and the next; transposed, of column and rows.
__device__ inline void LoadMatrices(uint32_t (&fragments)[4], const void* row) {
  PTX_OR(LoadMatrices(fragments, row, false),
         "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
         : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
         : "r"(SharedAddress(row))
         : "memory");
}
__device__ inline void LoadMatricesTransposed(uint32_t (&fragments)[4], const void* row) {
  PTX_OR(LoadMatrices(fragments, row, true),
         "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
         : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
         : "r"(SharedAddress(row))
         : "memory");
}
__device__ inline void StoreMatrices(const uint32_t (&fragments)[4], void* row) {
  PTX_OR(
      StoreMatrices(fragments, row),
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(SharedAddress(row)),
      "r"(fragments[0]), "r"(fragments[1]), "r"(fragments[2]), "r"(fragments[3])
      : "memory");
}

// mma.sync: sums[16, 8] += a[16, k] · b[k, 8] by a warp, k = 16 for 2 bytes and 32 for 1 byte. With
// g = lane / 4 and t = lane % 4, and w elements in a register: a[0], a[1] are rows g and g + 8 from
// column t · w on, a[2], a[3] the same in the second half of k; b[0], b[1] the same rows along k of
// column g; sums[0], sums[1] columns 2t and 2t + 1 of row g, sums[2], sums[3] of row g + 8.
#define PTX_MULTIPLY(name, type, shape)                                                        \
  __device__ inline void name(float(&sums)[4], const uint32_t(&a)[4], const uint32_t(&b)[2]) { \
    PTX_OR(name(sums, a, b),                                                                   \
           "mma.sync.aligned." shape ".row.col.f32." type "." type                             \
           ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"              \
           : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                        \
           : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                \
  }
PTX_MULTIPLY(MultiplyBf16, "bf16", "m16n8k16")
PTX_MULTIPLY(MultiplyF16, "f16", "m16n8k16")
PTX_MULTIPLY(MultiplyE4m3, "e4m3", "m16n8k32")
#undef PTX_MULTIPLY

#undef PTX_OR

}  // namespace tokamak::cuda::ptx
