// The emulated forms of the primitives in ops/cuda/ptx.h, which says what they do.
//
// A copy that is asynchronous lands when it is issued or when its bytes are waited for, as drawn;
// until then its destination is filled with 0xff.
#pragma once

#include <atomic>
#include <cstdint>

#include "ops/cuda/emulation/tensor_core_arithmetic.h"

struct CUtensorMap;

namespace tokamak::cuda::emulation {

void SyncNamed(int id, int count);

void CopyAsync16(void* shared, const void* global, int valid);
void CommitCopies();
void WaitForCopies(int pending);

void InitBarrier(uint64_t* barrier, int count);
void Arrive(uint64_t* barrier, int bytes);
void ArriveWhenCopied(uint64_t* barrier);
void WaitForPhase(uint64_t* barrier, uint32_t parity);
void CopyBulk(void* shared, const void* global, int bytes, uint64_t* barrier);

void PrefetchMap(const CUtensorMap* map);
void LoadBox(void* shared, const CUtensorMap* map, const int* at, int rank, uint64_t* barrier);
void LoadBoxToCtas(void* shared, const CUtensorMap* map, const int* at, int rank, uint64_t* barrier,
                   uint16_t ctas);
void FenceAsyncProxy();
void StoreBox(const CUtensorMap* map, const int* at, int rank, const void* shared);
void CommitStores();
void WaitForStoreReads(int pending);
void WaitForStores(int pending);

void LaunchDependents();
void WaitForKernelAhead();

// Ends the process if the address is not a multiple of `alignment`.
void CheckAligned(const char* what, const void* address, uintptr_t alignment = 16);

int ClusterRank();
void* MapShared(const void* shared, int rank);
void SyncCluster();
void PollCounter(const uint32_t* counter, uint32_t value);

inline uint32_t AddToCounter(uint32_t* counter, uint32_t value) {
  return std::atomic_ref<uint32_t>(*counter).fetch_add(value);
}
inline void ArriveAtCounter(uint32_t* counter) { std::atomic_ref<uint32_t>(*counter).fetch_add(1); }
inline void WaitForCounter(const uint32_t* counter, uint32_t value) {
  PollCounter(counter, value);
  (void)std::atomic_ref<const uint32_t>(*counter).load();  // so that ThreadSanitizer sees it too
}

void LoadMatrices(uint32_t* fragments, const void* row, bool transposed);
void StoreMatrices(const uint32_t* fragments, void* row);

void MultiplyBf16(float* sums, const uint32_t* a, const uint32_t* b);
void MultiplyF16(float* sums, const uint32_t* a, const uint32_t* b);
void MultiplyE4m3(float* sums, const uint32_t* a, const uint32_t* b);

void E4m3ToHalves(uint32_t* halves, uint32_t four);

// How tensor cores add: kInOrder with TOKAMAK_EMULATION_SUMS=plain, else kHopper.
extern const Arithmetic kArithmetic;

// An address in the CTA's shared memory, in the form that descriptors of tiles use.
uint32_t SharedAddress(const void* shared);

// The operands of one wgmma.mma_async.
struct WarpgroupProduct {
  ElementType type;
  int n;
  bool transposed_b;
  bool accumulate;
  uint64_t a;                   // descriptor, unless it is in registers
  const uint32_t* a_registers;  // four, of the calling thread
  uint64_t b;                   // descriptor
};
void WarpgroupMultiply(const WarpgroupProduct& product, float* sums);
void FenceRegisters();
inline void ChangeRegisters(int) {}  // there are enough
void CommitProducts();
void WaitForProducts(int pending);

}  // namespace tokamak::cuda::emulation
