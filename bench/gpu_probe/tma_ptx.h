// PTX of Hopper's asynchronous copies, as short functions: mbarriers, bulk copies and tensor maps,
// cp.async, dependent launch, clusters. Also the plain read that the sections compare with.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "bench/gpu_probe/probe.h"

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

// Makes initialised barriers visible to the copy engine and to the other CTAs of a cluster.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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

__device__ __forceinline__ void WaitParity(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  }
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
// Stores into the shared memory of the CTA with that rank, at the place of `local`.
__device__ __forceinline__ void StoreCluster(float* local, uint32_t rank, float value) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(SharedAddress(local)), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
}

// Arithmetic ------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t Fold(uint4 value) {
  return value.x ^ value.y ^ value.z ^ value.w;
}

// sum[16, 8] += a[16, 16] x b[16, 8]. bf16 into f32.
__device__ __forceinline__ void MultiplyAdd(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                            uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The plain read --------------------------------------------------------------------------------

template <int Unused = 0>
__global__ void __launch_bounds__(512, 2)
    ReadAllKernel(const uint4* data, size_t count, uint32_t* out) {
  constexpr int kLoads = 8;
  const size_t stride = size_t{gridDim.x} * blockDim.x * kLoads;
  uint32_t bits = 0;
  for (size_t base = size_t{blockIdx.x} * blockDim.x * kLoads; base < count; base += stride) {
    uint4 values[kLoads] = {};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const size_t at = base + size_t(i) * blockDim.x + threadIdx.x;
      if (at < count) values[i] = LoadStream(data + at);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) bits ^= Fold(values[i]);
  }
  bits = __reduce_xor_sync(~0u, bits);
  if (threadIdx.x % 32 == 0) atomicXor(out, bits);
}

// Times a kernel that only reads `bytes` contiguous bytes: what every share is a share of.
inline Timing TimePlainRead(const void* data, size_t bytes, uint32_t* out, cudaStream_t stream) {
  return Time(stream, [&] {
    ReadAllKernel<>
        <<<SmCount() * 2, 512, 0, stream>>>(static_cast<const uint4*>(data), bytes / 16, out);
  });
}

}  // namespace probe
