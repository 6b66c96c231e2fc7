// The emulator's services to a CUDA thread. include/cuda_runtime.h offers them by CUDA's names, and
// ops/cuda/ptx.h as primitives.
//
// A CUDA thread is a fiber. It runs until it has to wait for others, for example at a barrier or a
// shuffle; then the next thread is drawn from those that can go on (choice.h). One OS thread at a
// time runs all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace tokamak::cuda::emulation {

// A kernel with its arguments.
struct KernelLaunch {
  const void* kernel = nullptr;
  dim3 grid, block;
  size_t shared_bytes = 0;
  unsigned cluster = 1;          // CTAs along x that form a cluster
  bool cooperative = false;      // all CTAs are resident at once
  bool dependent = false;        // may start before the kernel ahead has ended
  std::function<void()> thread;  // what one thread does
};

// Puts a kernel into the stream; returns an error if the launch is wrong. `thread` is what one
// thread does.
cudaError_t Enqueue(const cudaLaunchConfig_t& config, const void* kernel,
                    std::function<void()> thread);

// Waits until `count` threads of the CTA have come to this barrier (0: all that have not ended).
// Returns how many of them brought a predicate that is true.
int SyncCta(int barrier, int count, bool predicate);

// Waits for the other lanes of `mask`, which must call it with the same mask and for the same
// reason. Returns what each lane brought, by lane; valid until the calling thread waits again.
const uint64_t* Exchange(unsigned mask, uint64_t value, const char* what);

unsigned Lane();

// Waits until all other threads wait and the host asks for the stream's progress again.
void Sleep();

// Return the CTA's dynamic shared memory, and its shared variable that is declared at `site` in the
// source. Each is a heap block of its own, fresh for each CTA and filled with 0xff.
void* DynamicShared();
void* SharedVariable(const void* site, size_t bytes, size_t alignment);

template <typename T>
T& Shared(const void* site) {
  return *static_cast<T*>(SharedVariable(site, sizeof(T), alignof(T)));
}

// Ends the process because the kernel is wrong. Says which thread found that.
[[noreturn]] void Fail(const std::string& what);

}  // namespace tokamak::cuda::emulation
