// The barriers of a ring of buffers in shared memory, which TMA fills at the request of one warp,
// and other warps read. Fills are numbered from 0, through all of a CTA's work; fill i goes to slot
// i % kSlots.
#pragma once

#include <cstdint>

#include "ops/cuda/device.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {

template <unsigned kSlots>
struct RingBarriers {
  uint64_t filled[kSlots];
  uint64_t emptied[kSlots];

  // One thread calls it, and a barrier of the CTA follows. `readers`: warps that read each fill.
  __device__ void Init(int readers) {
    for (unsigned slot = 0; slot < kSlots; ++slot) {
      ptx::InitBarrier(&filled[slot], 1);
      ptx::InitBarrier(&emptied[slot], readers);
    }
  }
  static __device__ unsigned Slot(unsigned fill) { return fill % kSlots; }

  // Waits until all readers have released what was in the slot before.
  __device__ void WaitUntilEmpty(unsigned fill) {
    if (fill < kSlots) return;
    ptx::WaitForPhase(&emptied[Slot(fill)], (fill / kSlots - 1) & 1);
  }
  // One thread calls it before it requests copies of `bytes` bytes that name filled[Slot(fill)].
  __device__ void Expect(unsigned fill, int bytes) {
    ptx::ArriveAndExpect(&filled[Slot(fill)], bytes);
  }
  __device__ void WaitUntilFilled(unsigned fill) {
    ptx::WaitForPhase(&filled[Slot(fill)], fill / kSlots & 1);
  }
  // Releases the slot after wgmma has read it and has been waited for. Each warp calls it.
  __device__ void ReleaseAfterProducts(unsigned fill) {
    if (threadIdx.x % kWarp == 0) ptx::Arrive(&emptied[Slot(fill)]);
  }
  // Releases the slot after plain loads or ldmatrix, which TMA could overtake. Each warp calls it.
  __device__ void ReleaseAfterLoads(unsigned fill) {
    ptx::FenceAsyncProxy();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) ptx::Arrive(&emptied[Slot(fill)]);
  }
};

}  // namespace tokamak::cuda
