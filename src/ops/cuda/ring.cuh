// The barriers of a ring of buffers in shared memory. One warp requests copies, by TMA or by
// cp.async, which fill the buffers, or several warps store to them; other warps read them. Fills are
// numbered from 0 through all of a CTA's work, and fill i goes to slot i % kSlots.
#pragma once

#include <cstdint>

#include "ops/cuda/device.cuh"
#include "ops/cuda/ptx.h"

namespace tokamak::cuda {

template <unsigned kSlots>
struct RingBarriers {
  static constexpr int kCount = static_cast<int>(kSlots);
  uint64_t filled[kSlots];
  uint64_t emptied[kSlots];

  // One thread calls it; a barrier of the CTA must follow. `readers`: number of warps that read
  // each fill. `writers`: how often something arrives at filled[Slot(fill)] for each fill.
  __device__ void Init(int readers, int writers = 1) {
    for (unsigned slot = 0; slot < kSlots; ++slot) {
      ptx::InitBarrier(&filled[slot], writers);
      ptx::InitBarrier(&emptied[slot], readers);
    }
  }
  static __device__ unsigned Slot(unsigned fill) { return fill % kSlots; }

  // Waits until all readers have released the previous fill of the slot.
  __device__ void WaitUntilEmpty(unsigned fill) {
    if (fill < kSlots) return;
    ptx::WaitForPhase(&emptied[Slot(fill)], (fill / kSlots - 1) & 1);
  }
  // One thread calls it before it requests copies of `bytes` bytes that name filled[Slot(fill)].
  __device__ void Expect(unsigned fill, int bytes) {
    ptx::ArriveAndExpect(&filled[Slot(fill)], bytes);
  }
  // Each writer calls it after it has requested its copies by cp.async.
  __device__ void ArriveWhenCopied(unsigned fill) { ptx::ArriveWhenCopied(&filled[Slot(fill)]); }
  // Waits for the last of `fills` fills. Writers that copy by cp.async do not end before.
  __device__ void WaitForLast(unsigned fills) {
    for (unsigned fill = fills - min(fills, kSlots); fill < fills; ++fill) WaitUntilFilled(fill);
  }
  __device__ void WaitUntilFilled(unsigned fill) {
    ptx::WaitForPhase(&filled[Slot(fill)], fill / kSlots & 1);
  }
  // Releases a slot that wgmma has read. Each warp calls it after waiting for those products.
  __device__ void ReleaseAfterProducts(unsigned fill) {
    if (threadIdx.x % kWarp == 0) ptx::Arrive(&emptied[Slot(fill)]);
  }
  // Releases a slot that plain loads or ldmatrix have read. Each warp calls it. The fence keeps TMA
  // from overtaking those loads.
  __device__ void ReleaseAfterLoads(unsigned fill) {
    ptx::FenceAsyncProxy();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) ptx::Arrive(&emptied[Slot(fill)]);
  }
  // The same if cp.async fills the slots.
  __device__ void ReleaseToThreads(unsigned fill) {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) ptx::Arrive(&emptied[Slot(fill)]);
  }
};

}  // namespace tokamak::cuda
