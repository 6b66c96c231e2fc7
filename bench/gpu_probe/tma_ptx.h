// PTX that moves data and orders its movement, as short functions: mbarriers, bulk copies and
// tensor maps, cp.async, dependent launch, clusters.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace probe {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// mbarriers ------------------------------------------------------------------------------------

__device__ __forceinline__ void InitBarrier(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(arrivals)
               : "memory");
}

// Orders this thread's plain loads and stores of shared memory before what wgmma and the copy
// engine do there afterwards. A copy may overtake even loads: an arrival at a barrier does not keep
// it back.
__device__ __forceinline__ void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Makes initialised barriers visible to the copy engine and to the other CTAs of a cluster.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  FenceAsyncProxy();
}

__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}

__device__ __forceinline__ void ArriveExpect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}

// Waits for the phase of parity `parity` to complete. A new barrier counts as having completed a
// phase of parity 1. With kCluster, what other CTAs of the cluster did before they arrived is
// visible afterwards.
template <bool kCluster = false>
__device__ __forceinline__ void WaitParity(uint64_t* barrier, uint32_t parity) {
#define PROBE_TRY_WAIT(SCOPE)                    \
  asm volatile(                                  \
      "{\n.reg .pred p;\n"                       \
      "mbarrier.try_wait.parity" SCOPE           \
      ".shared::cta.b64 p, [%1], %2;\n"          \
      "selp.u32 %0, 1, 0, p;\n}"                 \
      : "=r"(done)                               \
      : "r"(SharedAddress(barrier)), "r"(parity) \
      : "memory")
  uint32_t done = 0;
  while (done == 0) {
    if constexpr (kCluster) {
      PROBE_TRY_WAIT(".acquire.cluster");
    } else {
      PROBE_TRY_WAIT("");
    }
  }
#undef PROBE_TRY_WAIT
}

// A position in a ring of `stages` slots, with the parity of the pass through the ring.
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Next(int stages) {
    if (++slot == stages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// Says that the warp has read a stage by plain loads, which the copy engine may fill again.
__device__ __forceinline__ void ReleaseStage(uint64_t* empty) {
  FenceAsyncProxy();
  __syncwarp();
  if (threadIdx.x % 32 == 0) Arrive(empty);
}

// Copies to shared memory -----------------------------------------------------------------------

// Contiguous bytes, a multiple of 16, both addresses 16-byte aligned.
__device__ __forceinline__ void BulkCopy(void* to, const void* from, uint32_t bytes,
                                         uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// The box of a tensor map that starts at these coordinates, the innermost first.
__device__ __forceinline__ void TensorCopy2(void* to, const CUtensorMap* map, int x, int y,
                                            uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(SharedAddress(to)),
      "l"(map), "r"(x), "r"(y), "r"(SharedAddress(barrier))
      : "memory");
}

__device__ __forceinline__ void TensorCopy4(void* to, const CUtensorMap* map, int x, int y, int z,
                                            int w, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(SharedAddress(to)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(SharedAddress(barrier))
      : "memory");
}

__device__ __forceinline__ void CopyAsync16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(to)), "l"(from)
               : "memory");
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int Pending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// 16 bytes of read-only memory, past the L1.
__device__ __forceinline__ uint4 LoadStream(const void* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

__device__ __forceinline__ uint32_t Fold(uint4 value) {
  return value.x ^ value.y ^ value.z ^ value.w;
}

// Dependent launch ------------------------------------------------------------------------------

// Returns once the kernel ahead has ended and its writes are visible.
__device__ __forceinline__ void WaitForKernelAhead() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// Allows the next kernel to start, once all CTAs of this one said so or ended.
__device__ __forceinline__ void LaunchNextKernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Clusters --------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The address of `local`'s place in the shared memory of another CTA, the one with that rank.
__device__ __forceinline__ uint32_t ClusterAddress(const void* local, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(SharedAddress(local)), "r"(rank));
  return remote;
}
// Stores two floats into that CTA's memory and counts their 8 bytes on its barrier once they are
// there.
__device__ __forceinline__ void SendCluster(float* local, uint64_t* barrier, uint32_t rank, float x,
                                            float y) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(ClusterAddress(local, rank)),
      "f"(x), "f"(y), "r"(ClusterAddress(barrier, rank))
      : "memory");
}
// Orders what this CTA has read, not what it has written: a release at the cluster's scope would
// wait for all stores to global memory.
__device__ __forceinline__ void ArriveCluster(uint64_t* barrier, uint32_t rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(ClusterAddress(barrier, rank))
               : "memory");
}
__device__ __forceinline__ float LoadCluster(const float* local, uint32_t rank) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];"
               : "=f"(value)
               : "r"(ClusterAddress(local, rank))
               : "memory");
  return value;
}

}  // namespace probe
