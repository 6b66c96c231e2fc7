// The emulated forms of the primitives in ops/cuda/ptx.h, which says what they do.
//
// A copy that is asynchronous lands when it is issued or when its bytes are waited for, as drawn;
// until then its destination is filled with 0xff.
#pragma once

#include <cstdint>

namespace tokamak::cuda::emulation {

void SyncNamed(int id, int count);

void CopyAsync16(void* shared, const void* global, int valid);
void CommitCopies();
void WaitForCopies(int pending);

void InitBarrier(uint64_t* barrier, int count);
void Arrive(uint64_t* barrier, int bytes);
void WaitForPhase(uint64_t* barrier, uint32_t parity);
void CopyBulk(void* shared, const void* global, int bytes, uint64_t* barrier);

int ClusterRank();
void* MapShared(const void* shared, int rank);
void SyncCluster();
void ArriveAtCounter(uint32_t* counter);
void WaitForCounter(const uint32_t* counter, uint32_t value);

void LoadMatrices(uint32_t* fragments, const void* row, bool transposed);
void StoreMatrices(const uint32_t* fragments, void* row);

void MultiplyBf16(float* sums, const uint32_t* a, const uint32_t* b);
void MultiplyF16(float* sums, const uint32_t* a, const uint32_t* b);
void MultiplyE4m3(float* sums, const uint32_t* a, const uint32_t* b);

}  // namespace tokamak::cuda::emulation
