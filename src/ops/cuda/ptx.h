// Primitives beyond CUDA C++, each in its two forms: the PTX, and what the emulator does instead.
// This header and launch.h alone know which compiler there is (tools/check_kernels.py). docs/gpu.md
// says which primitive has run on which GPU.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#ifndef __CUDACC__
#include "ops/cuda/emulation/primitives.h"
#endif

namespace tokamak::cuda::ptx {

#ifdef __CUDACC__
#define PTX_OR(emulated, ...) asm volatile(__VA_ARGS__)
// Returns an address in the form that instructions for shared memory take.
__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasDependents = false;
#else
inline constexpr bool kHasDependents = true;
#endif
// Whether code is being compiled for a GPU with TMA, wgmma and dependent launches. Kernels with
// them are templates whose bodies are left out otherwise, and are launched on Hopper alone.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kIsHopper = false;
#else
inline constexpr bool kIsHopper = true;
#endif
#else
inline constexpr bool kIsHopper = true;
inline constexpr bool kHasDependents = true;
#define PTX_OR(emulated, ...) ::tokamak::cuda::emulation::emulated
using emulation::SharedAddress;
#endif

// Waits at barrier `id` (1 to 15; __syncthreads is 0) for `count` threads, whole warps.
__device__ inline void SyncNamed(int id, int count) {
  PTX_OR(SyncNamed(id, count), "bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// cp.async: writes 16 bytes to shared memory: `valid` bytes from global memory, then zeros. Both
// addresses are aligned to 16. The calling thread sees the bytes when it has waited for them, other
// threads after a barrier behind that.
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

// GPUs before Hopper lack some words of the instructions for mbarriers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define PTX_SHOW_BARRIER ""
#define PTX_WAIT "mbarrier.test_wait.parity.shared::cta.b64"
#else
#define PTX_SHOW_BARRIER "fence.mbarrier_init.release.cluster;"
#define PTX_WAIT "mbarrier.try_wait.parity.shared::cta.b64"
#endif
// mbarrier, in shared memory. A phase ends when `count` threads have arrived and all bytes that
// they said to expect have come; phases are numbered from 0, and `parity` is a number's last bit.
// A barrier of the CTA must come between InitBarrier and other threads' first use.
__device__ inline void InitBarrier(uint64_t* barrier, int count) {
  PTX_OR(InitBarrier(barrier, count),
         "mbarrier.init.shared::cta.b64 [%0], %1;\n" PTX_SHOW_BARRIER ::"r"(SharedAddress(barrier)),
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
         "AGAIN%=:\n" PTX_WAIT
         " done, [%0], %1;\n"
         "@!done bra AGAIN%=;\n"
         "}" ::"r"(SharedAddress(barrier)),
         "r"(parity)
         : "memory");
}

#undef PTX_SHOW_BARRIER
#undef PTX_WAIT
// Arrives when all copies by cp.async that the thread has issued so far are done. Those who wait
// for the phase see their bytes.
__device__ inline void ArriveWhenCopied(uint64_t* barrier) {
  PTX_OR(ArriveWhenCopied(barrier),
         "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier))
         : "memory");
}

// TMA without a tensor map: copies `bytes`, a multiple of 16, from global to shared memory, both
// aligned to 16. One thread calls it, after ArriveAndExpect with as many bytes.
__device__ inline void CopyBulk(void* shared, const void* global, int bytes, uint64_t* barrier) {
  PTX_OR(
      CopyBulk(shared, global, bytes, barrier),
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(global), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// TMA with a tensor map (tensor_map.h): `map` is a parameter of the kernel, and the box begins at
// the coordinates `at`, innermost first. The innermost one must be a multiple of 16 bytes. `shared`
// is aligned to 128 bytes. All bytes of a box are expected at the barrier, those outside of the
// tensor too, which become zero.
//
// Coordinates are operands 0 to 4, of which the tensor's rank uses the first ones.
#define PTX_BOX(rank, coordinates, before, after, ...)                                             \
  if constexpr (kRank == rank) {                                                                   \
    asm volatile("cp.async.bulk.tensor." #rank "d." before "{" coordinates "}" after ::"r"(at[0]), \
                 "r"(at[kRank > 1 ? 1 : 0]), "r"(at[kRank > 2 ? 2 : 0]),                           \
                 "r"(at[kRank > 3 ? 3 : 0]), "r"(at[kRank > 4 ? 4 : 0]), __VA_ARGS__               \
                 : "memory");                                                                      \
  }
#define PTX_BOXES(...)                      \
  PTX_BOX(1, "%0", __VA_ARGS__)             \
  PTX_BOX(2, "%0, %1", __VA_ARGS__)         \
  PTX_BOX(3, "%0, %1, %2", __VA_ARGS__)     \
  PTX_BOX(4, "%0, %1, %2, %3", __VA_ARGS__) \
  PTX_BOX(5, "%0, %1, %2, %3, %4", __VA_ARGS__)

// Lets the first copy find the map.
__device__ inline void PrefetchMap(const CUtensorMap* map) {
  PTX_OR(PrefetchMap(map), "prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
template <size_t kRank>
__device__ inline void LoadBox(void* shared, const CUtensorMap* map, const int (&at)[kRank],
                               uint64_t* barrier) {
#ifdef __CUDACC__
  PTX_BOXES("shared::cluster.global.tile.mbarrier::complete_tx::bytes [%5], [%6, ", "], [%7];",
            "r"(SharedAddress(shared)), "l"(map), "r"(SharedAddress(barrier)))
#else
  emulation::LoadBox(shared, map, at, kRank, barrier);
#endif
}
// Copies to the same places of all CTAs of the cluster whose bit in `ctas` is set. Each of them
// waits at its own barrier.
template <size_t kRank>
__device__ inline void LoadBoxToCtas(void* shared, const CUtensorMap* map, const int (&at)[kRank],
                                     uint64_t* barrier, uint16_t ctas) {
#ifdef __CUDACC__
  PTX_BOXES(
      "shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%5], [%6, ",
      "], [%7], %8;", "r"(SharedAddress(shared)), "l"(map), "r"(SharedAddress(barrier)), "h"(ctas))
#else
  emulation::LoadBoxToCtas(shared, map, at, kRank, barrier, ctas);
#endif
}
// Elements beyond the tensor's end are not stored, but the padding of its rows to multiples of 16
// bytes is overwritten. No coordinate may be negative. Threads that wrote to `shared` call
// FenceAsyncProxy before the barrier that lets the storing thread go on.
template <size_t kRank>
__device__ inline void StoreBox(const CUtensorMap* map, const int (&at)[kRank],
                                const void* shared) {
#ifdef __CUDACC__
  PTX_BOXES("global.shared::cta.tile.bulk_group [%6, ", "], [%5];", "r"(SharedAddress(shared)),
            "l"(map))
#else
  emulation::StoreBox(map, at, kRank, shared);
#endif
}
#undef PTX_BOXES
#undef PTX_BOX
// Orders the thread's plain loads and stores of shared memory before what TMA and wgmma do there
// after a barrier at which the thread arrives next. TMA may overtake even loads: a buffer that is
// to be filled again needs the fence too.
__device__ inline void FenceAsyncProxy() {
  PTX_OR(FenceAsyncProxy(), "fence.proxy.async.shared::cta;" ::: "memory");
}
// Makes a group of the thread's stores since the last one.
__device__ inline void CommitStores() {
  PTX_OR(CommitStores(), "cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but the last kPending groups have read shared memory, which a thread must do
// before it ends.
template <int kPending>
__device__ inline void WaitForStoreReads() {
  PTX_OR(WaitForStoreReads(kPending), "cp.async.bulk.wait_group.read %0;" ::"n"(kPending)
         : "memory");
}
// Waits until they have also written.
template <int kPending>
__device__ inline void WaitForStores() {
  PTX_OR(WaitForStores(kPending), "cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Dependent launch (LaunchGroups with `dependent`). The next kernel may start once all CTAs have
// called LaunchDependents or ended. What this one writes is there for it after its own
// WaitForKernelAhead, which returns when this kernel has ended. Compiled for GPUs before Hopper,
// both do nothing.
__device__ inline void LaunchDependents() {
  if constexpr (kHasDependents) {
    PTX_OR(LaunchDependents(), "griddepcontrol.launch_dependents;" ::: "memory");
  }
}
__device__ inline void WaitForKernelAhead() {
  if constexpr (kHasDependents) {
    PTX_OR(WaitForKernelAhead(), "griddepcontrol.wait;" ::: "memory");
  }
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
// The place in the shared memory of the CTA of that rank that corresponds to `shared` here.
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
// Adds to a counter and returns what it was. Threads that add to it later see what this thread
// wrote before, and what others wrote before a barrier that they share with this thread. After a
// barrier with those threads, others see it too.
__device__ inline uint32_t AddToCounter(uint32_t* counter, uint32_t value) {
#ifdef __CUDACC__
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(value)
               : "memory");
  return before;
#else
  return emulation::AddToCounter(counter, value);
#endif
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
// address of row l % 8 of matrix l / 8, aligned to 16 bytes. fragments[i] are two
// elements of matrix i: row lane / 4, columns lane % 4 * 2 and the next. If transposed: column
// lane / 4, rows lane % 4 * 2 and the next.
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

// cvt: f16 numbers with the values of four in E4M3, all of them exact. NaN becomes 0x7fff.
__device__ inline void E4m3ToHalves(uint32_t (&halves)[2], uint32_t four) {
  PTX_OR(E4m3ToHalves(halves, four),
         "{\n"
         ".reg .b16 low, high;\n"
         "mov.b32 {low, high}, %2;\n"
         "cvt.rn.f16x2.e4m3x2 %0, low;\n"
         "cvt.rn.f16x2.e4m3x2 %1, high;\n"
         "}"
         : "=r"(halves[0]), "=r"(halves[1])
         : "r"(four));
}

// wgmma: sums[64, N] += a[64, k] · b[k, N] by a warpgroup, four warps from a multiple of four on;
// k = 16 for 2 bytes and 32 for 1 byte, N = 8, 16, 32, 64, 128 or 256. In this order:
//   FenceAsyncProxy     by each thread that stored to an operand in shared memory itself; a barrier
//   PinRegisters        for each array of sums and of a
//   FenceRegisters      after the last use of those registers by anything else
//   WarpgroupMultiply…  equal in all 128 threads, any number
//   CommitProducts      makes a group of them
//   WaitForProducts     until at most kPending groups are under way
//   PinRegisters        for each array of sums that is there now
// Until they are waited for, nobody may touch the sums, the registers of a, or the operands in
// shared memory.
//
// Each warp has 16 rows. With g = lane / 4 and t = lane % 4, sums[4j + 2i + c] is row g + 8i,
// column 8j + 2t + c. Registers of a are as in mma.sync.

__device__ inline void FenceRegisters() {
  PTX_OR(FenceRegisters(), "wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void CommitProducts() {
  PTX_OR(CommitProducts(), "wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void WaitForProducts() {
  PTX_OR(WaitForProducts(kPending), "wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of these registers past this place.
template <typename T, int kCount>
__device__ inline void PinRegisters([[maybe_unused]] T (&registers)[kCount]) {
#ifdef __CUDACC__
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      asm volatile("" : "+f"(registers[i])::"memory");
    } else {
      asm volatile("" : "+r"(registers[i])::"memory");
    }
  }
#endif
}

// Change the number of registers of a thread: one warpgroup gives some back, and another one waits
// for them and takes them. All threads of a warpgroup call it; kCount is a multiple of 8 from 24 to
// 256.
template <int kCount>
__device__ inline void GiveRegistersBack() {
  PTX_OR(ChangeRegisters(kCount), "setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void TakeRegisters() {
  PTX_OR(ChangeRegisters(kCount), "setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// How an operand of wgmma lies in shared memory. Here a row is a row of a or a column of b, along
// k; with kTransposedB, a row of b. Eight rows make a group.
//   span 0            Pieces of 8 rows of 16 bytes, one after the other. From piece to piece it is
//                     `leading` bytes along k and `stride` bytes the other way.
//   span 32, 64, 128  Rows of `span` bytes, one after the other, swizzled as emulation/swizzle.h
//                     does it, the first one aligned to 8 · span. From group to group it is
//                     `stride` bytes, and `leading` to the next `span` bytes of the same rows.
// Within a span, the next product along k begins 32 bytes further on.
__device__ inline uint64_t DescribeTile(const void* tile, int span, int leading, int stride) {
  const uint64_t swizzle = span == 0 ? 0 : span == 128 ? 1 : span == 64 ? 2 : 3;
  return (SharedAddress(tile) & 0x3ffff) >> 4 | static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | swizzle << 62;
}

#ifdef __CUDACC__
#define PTX_TEN(t)                                                                                 \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t \
  "9, "
#define PTX_4_SUMS(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define PTX_8_SUMS(i) PTX_4_SUMS(i), PTX_4_SUMS(i + 4)
#define PTX_16_SUMS(i) PTX_8_SUMS(i), PTX_8_SUMS(i + 8)
#define PTX_32_SUMS(i) PTX_16_SUMS(i), PTX_16_SUMS(i + 16)
#define PTX_64_SUMS(i) PTX_32_SUMS(i), PTX_32_SUMS(i + 32)
#define PTX_128_SUMS(i) PTX_64_SUMS(i), PTX_64_SUMS(i + 64)
// product(shape, order, N, names of the sums, sums, names of the seven operands after them).
#define PTX_BY_WIDTH(product, element, shape, order)                                               \
  if constexpr (kCount == 4) {                                                                     \
    product(shape, order, "8", "%0, %1, %2, %3", PTX_4_SUMS(0), "%4", "%5", "%6", "%7", "%8",      \
            "%9", "%10");                                                                          \
  } else if constexpr (kCount == 8) {                                                              \
    product(shape, order, "16", "%0, %1, %2, %3, %4, %5, %6, %7", PTX_8_SUMS(0), "%8", "%9",       \
            "%10", "%11", "%12", "%13", "%14");                                                    \
  } else if constexpr (kCount == 16) {                                                             \
    product(shape, order, "32", PTX_TEN() "%10, %11, %12, %13, %14, %15", PTX_16_SUMS(0), "%16",   \
            "%17", "%18", "%19", "%20", "%21", "%22");                                             \
  } else if constexpr (kCount == 32) {                                                             \
    product(shape, order, "64", PTX_TEN() PTX_TEN(1) PTX_TEN(2) "%30, %31", PTX_32_SUMS(0), "%32", \
            "%33", "%34", "%35", "%36", "%37", "%38");                                             \
  } else if constexpr (kCount == 64) {                                                             \
    product(shape, order, "128",                                                                   \
            PTX_TEN() PTX_TEN(1) PTX_TEN(2) PTX_TEN(3) PTX_TEN(4) PTX_TEN(5) "%60, %61, %62, %63", \
            PTX_64_SUMS(0), "%64", "%65", "%66", "%67", "%68", "%69", "%70");                      \
  } else {                                                                                         \
    static_assert(kCount == 128);                                                                  \
    product(shape, order, "256",                                                                   \
            PTX_TEN() PTX_TEN(1) PTX_TEN(2) PTX_TEN(3) PTX_TEN(4) PTX_TEN(5) PTX_TEN(6) PTX_TEN(7) \
                PTX_TEN(8) PTX_TEN(9) PTX_TEN(10)                                                  \
                    PTX_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127",                  \
            PTX_128_SUMS(0), "%128", "%129", "%130", "%131", "%132", "%133", "%134");              \
  }
#define PTX_ORDER_16(at) ", " at
#define PTX_ORDER_8(at) ""  // always along k
#define PTX_WGMMA(shape, n, names, from, at_b, at_add, orders)                      \
  "{\n.reg .pred adds;\nsetp.ne.b32 adds, " at_add                                  \
  ", 0;\nwgmma.mma_async.sync.aligned.m64n" n shape " {" names "}, " from ", " at_b \
  ", adds, 1, 1" orders ";\n}"
#define PTX_OTHERS "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposedB ? 1 : 0)
#define PTX_FROM_SHARED(shape, order, n, names, out, at_b, at_add, at_order, at_a, ...)   \
  asm volatile(PTX_WGMMA(shape, n, names, at_a, at_b, at_add, order("0") order(at_order)) \
               : out                                                                      \
               : PTX_OTHERS, "l"(a)                                                       \
               : "memory")
#define PTX_FROM_REGISTERS(shape, order, n, names, out, at_b, at_add, at_order, a0, a1, a2, a3) \
  asm volatile(PTX_WGMMA(shape, n, names, "{" a0 ", " a1 ", " a2 ", " a3 "}", at_b, at_add,     \
                         order(at_order))                                                       \
               : out                                                                            \
               : PTX_OTHERS, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])                         \
               : "memory")
#else
#define PTX_BY_WIDTH(product, element, shape, order)                     \
  emulation::WarpgroupMultiply({.type = emulation::ElementType::element, \
                                .n = 2 * kCount,                         \
                                .transposed_b = kTransposedB,            \
                                .accumulate = accumulate,                \
                                product(a),                              \
                                .b = b},                                 \
                               sums)
#define PTX_FROM_SHARED(a) .a = a, .a_registers = nullptr
#define PTX_FROM_REGISTERS(a) .a = 0, .a_registers = a
#endif

// `accumulate` false: from zero. kTransposedB: b lies in shared memory as rows along N.
#define PTX_WARPGROUP_MULTIPLY(name, bits, element, shape)                                     \
  template <bool kTransposedB = false, int kCount>                                             \
  __device__ inline void name(float(&sums)[kCount], uint64_t a, uint64_t b, bool accumulate) { \
    static_assert(bits == 16 || !kTransposedB);                                                \
    PTX_BY_WIDTH(PTX_FROM_SHARED, element, shape, PTX_ORDER_##bits);                           \
  }                                                                                            \
  template <bool kTransposedB = false, int kCount>                                             \
  __device__ inline void name(float(&sums)[kCount], const uint32_t(&a)[4], uint64_t b,         \
                              bool accumulate) {                                               \
    static_assert(bits == 16 || !kTransposedB);                                                \
    PTX_BY_WIDTH(PTX_FROM_REGISTERS, element, shape, PTX_ORDER_##bits);                        \
  }
PTX_WARPGROUP_MULTIPLY(WarpgroupMultiplyBf16, 16, kBf16, "k16.f32.bf16.bf16")
PTX_WARPGROUP_MULTIPLY(WarpgroupMultiplyF16, 16, kF16, "k16.f32.f16.f16")
PTX_WARPGROUP_MULTIPLY(WarpgroupMultiplyE4m3, 8, kE4m3, "k32.f32.e4m3.e4m3")
#undef PTX_WARPGROUP_MULTIPLY

#undef PTX_OR

}  // namespace tokamak::cuda::ptx
