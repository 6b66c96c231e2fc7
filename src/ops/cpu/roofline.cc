// Loops that only load or only multiply registers, with kChains independent chains to hide latency.
// Bound: the unit that they measure.
#include "ops/cpu/roofline.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/thread_pool.h"
#include "ops/cpu/amx/tiles.h"
#include "ops/host/host_ops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tokamak {
namespace {

constexpr int kChains = 12;
constexpr int64_t kIterations = 100'000;  // of all chains; takes about a millisecond
constexpr int64_t kPiece = 256 << 10;     // bytes that one item reads
constexpr int64_t kMemory = int64_t{512} << 20;
constexpr int kItemsPerThread = 8;  // so that no thread waits long for the last item

// A ReadLoop reads bytes [0, size) of `data`; size is a multiple of 512. A MultiplyLoop multiplies
// kIterations times. Their results mean nothing: they keep the compiler from dropping the work.
using ReadLoop = uint64_t (*)(const std::byte* data, int64_t size);
using MultiplyLoop = uint64_t (*)();

struct Multiply {
  MultiplyLoop run = nullptr;
  int macs = 0;  // per step of one chain
};

struct Loops {
  ReadLoop read = nullptr;
  Multiply int8, f32, bf16, tile;
};

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")  // keeps the sums in registers
#endif

// Defines a function for one ISA, whatever flags this file has. Lambdas and templates would not
// inherit the target attribute. The compilers' own vector types can be added and indexed.
#define READ_LOOP(NAME, VECTOR, ...)                                         \
  __VA_ARGS__ uint64_t NAME(const std::byte* data, int64_t size) {           \
    VECTOR sums[8] = {};                                                     \
    constexpr int64_t kBytes = sizeof(VECTOR);                               \
    for (int64_t at = 0; at < size; at += 8 * kBytes) {                      \
      UNROLL for (int i = 0; i < 8; ++i) {                                   \
        sums[i] ^= *reinterpret_cast<const VECTOR*>(data + at + i * kBytes); \
      }                                                                      \
    }                                                                        \
    for (int i = 1; i < 8; ++i) sums[0] ^= sums[i];                          \
    return static_cast<uint64_t>(sums[0][0]);                                \
  }

// STEP computes the next `sum` from `sum` and `a`, whose value the compiler does not know.
#define MULTIPLY_LOOP(NAME, SUM, FACTOR, REGISTER, STEP, ...)      \
  __VA_ARGS__ uint64_t NAME() {                                    \
    SUM sums[kChains] = {};                                        \
    FACTOR a = {};                                                 \
    for (int64_t n = 0; n < kIterations; ++n) {                    \
      UNROLL for (SUM & sum : sums) {                              \
        asm volatile("" : "+" REGISTER(a));                        \
        sum = STEP;                                                \
      }                                                            \
    }                                                              \
    for (int i = 1; i < kChains; ++i) sums[0] = sums[0] + sums[i]; \
    return static_cast<uint64_t>(sums[0][0]);                      \
  }

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define AVX512_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define AVX_VNNI __attribute__((target("avx2,avxvnni")))
#define AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define AMX __attribute__((target("amx-tile,amx-int8,amx-bf16")))

READ_LOOP(ReadSse2, __m128i)
READ_LOOP(ReadAvx2, __m256i, AVX2)
READ_LOOP(ReadAvx512, __m512i, AVX512)

MULTIPLY_LOOP(F32Sse2, __m128, __m128, "x", _mm_add_ps(sum, _mm_mul_ps(a, a)))
MULTIPLY_LOOP(F32Avx2, __m256, __m256, "x", _mm256_fmadd_ps(a, a, sum), AVX2)
MULTIPLY_LOOP(F32Avx512, __m512, __m512, "x", _mm512_fmadd_ps(a, a, sum), AVX512)
// Without VNNI: products are added by pairs in 16 bits, then in 32 bits.
MULTIPLY_LOOP(Int8Sse2, __m128i, __m128i, "x", _mm_add_epi32(sum, _mm_madd_epi16(a, a)))
MULTIPLY_LOOP(Int8Avx2, __m256i, __m256i, "x",
              _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, a), a)), AVX2)
MULTIPLY_LOOP(Int8Avx512, __m512i, __m512i, "x",
              _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(a, a), a)), AVX512)
MULTIPLY_LOOP(Int8AvxVnni, __m256i, __m256i, "x", _mm256_dpbusd_avx_epi32(sum, a, a), AVX_VNNI)
MULTIPLY_LOOP(Int8Avx512Vnni, __m512i, __m512i, "x", _mm512_dpbusd_epi32(sum, a, a), AVX512_VNNI)
MULTIPLY_LOOP(Bf16Avx512, __m512, __m512bh, "x", _mm512_dpbf16_ps(sum, a, a), AVX512_BF16)

// Four chains are enough: a product takes 16 cycles, and its sums are ready after 52. A product of
// tiles counts as kTileSteps steps.
constexpr int kTileSteps = 32;
#define TILE_LOOP(NAME, PRODUCT)                                                                 \
  AMX uint64_t NAME() {                                                                          \
    cpu::TileConfig config;                                                                      \
    for (int tile = 0; tile < 8; ++tile) config.Set(tile, 16, 64);                               \
    asm volatile("ldtilecfg %0" : : "m"(config)); /* also zeroes the tiles */                    \
    for (int64_t n = 0; n < kIterations * kChains / (4 * kTileSteps); ++n) {                     \
      asm volatile(PRODUCT " %tmm6, %tmm4, %tmm0\n\t" PRODUCT " %tmm7, %tmm4, %tmm1\n\t" PRODUCT \
                           " %tmm6, %tmm5, %tmm2\n\t" PRODUCT " %tmm7, %tmm5, %tmm3");           \
    }                                                                                            \
    asm volatile("tilerelease");                                                                 \
    return 0;                                                                                    \
  }
TILE_LOOP(Int8Amx, "tdpbssd")
TILE_LOOP(Bf16Amx, "tdpbf16ps")

Loops ChooseLoops(std::string_view isa) {
  // The number beside a loop is the MACs per step of one chain. The backend has checked that the
  // ISA runs here.
  const bool vnni =
      isa.ends_with("vnni") || isa.starts_with("avx512bf16") || isa.starts_with("amx");
  if (isa.starts_with("avx512") || isa.starts_with("amx")) {
    Loops loops = {ReadAvx512, {vnni ? Int8Avx512Vnni : Int8Avx512, 64}, {F32Avx512, 16}, {}, {}};
    if (isa.starts_with("avx512bf16")) loops.bf16 = {Bf16Avx512, 32};
    if (isa.starts_with("amx")) {
      loops.bf16 = {Bf16Amx, 16 * 16 * 32 / kTileSteps};
      loops.tile = {Int8Amx, 16 * 16 * 64 / kTileSteps};
    }
    return loops;
  }
  if (isa.starts_with("avx")) {
    return {ReadAvx2, {vnni ? Int8AvxVnni : Int8Avx2, 32}, {F32Avx2, 8}, {}, {}};
  }
  return {ReadSse2, {Int8Sse2, 8}, {F32Sse2, 4}, {}, {}};  // 8-bit numbers are widened first
}
#elif defined(__aarch64__)
READ_LOOP(ReadNeon, int64x2_t)
MULTIPLY_LOOP(F32Neon, float32x4_t, float32x4_t, "w", vfmaq_f32(sum, a, a))
// Products in 16 bits are added by pairs in 32 bits.
MULTIPLY_LOOP(Int8Neon, int32x4_t, int8x8_t, "w", vpadalq_s16(sum, vmull_s8(a, a)))
MULTIPLY_LOOP(Int8Dot, int32x4_t, int8x16_t, "w", vdotq_s32(sum, a, a),
              __attribute__((target("arch=armv8.2-a+dotprod"))))
MULTIPLY_LOOP(Int8I8mm, int32x4_t, int8x16_t, "w", vmmlaq_s32(sum, a, a),
              __attribute__((target("arch=armv8.2-a+i8mm"))))

Loops ChooseLoops(std::string_view isa) {
  // The number beside a loop is the MACs per step of one chain. The backend has checked that the
  // ISA runs here.
  Multiply int8 = {Int8Neon, 8};
  if (isa.starts_with("neondot")) int8 = {Int8Dot, 16};
  if (isa.starts_with("neoni8mm")) int8 = {Int8I8mm, 32};
  return {ReadNeon, int8, {F32Neon, 4}, {}, {}};
}
#else
Loops ChooseLoops(std::string_view) { return {}; }
#endif

// The shortest of several runs of `work`, in seconds.
template <typename Work>
double Fastest(int tries, const Work& work) {
  double best = 1e9;
  for (int i = 0; i < tries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

// Keeps the compiler from dropping the loops' results.
struct alignas(64) Sink {
  volatile uint64_t value = 0;
};

// All threads together read [0, size) of `data` once.
void ReadAll(ThreadPool& pool, ReadLoop read, const std::byte* data, int64_t size, Sink* sinks) {
  pool.ParallelFor(size / kPiece, [&](int64_t item, int worker) {
    sinks[worker].value = sinks[worker].value + read(data + item * kPiece, kPiece);
  });
}

// Each thread reads its own piece repeatedly.
double CachedGbS(ThreadPool& pool, ReadLoop read, const std::byte* data, Sink* sinks) {
  constexpr int kRounds = 64;
  const int items = pool.num_threads() * kItemsPerThread;
  const double seconds = Fastest(3, [&] {
    pool.ParallelFor(items, [&](int64_t, int worker) {
      for (int round = 0; round < kRounds; ++round) {
        sinks[worker].value = sinks[worker].value + read(data + worker * kPiece, kPiece);
      }
    });
  });
  return static_cast<double>(items) * kRounds * kPiece / seconds / 1e9;
}

double GmacS(ThreadPool& pool, const Multiply& loop, Sink* sinks) {
  if (loop.run == nullptr) return 0;
  const int items = pool.num_threads() * kItemsPerThread;
  const double seconds = Fastest(3, [&] {
    pool.ParallelFor(items, [&](int64_t, int worker) {
      sinks[worker].value = sinks[worker].value + loop.run();
    });
  });
  return static_cast<double>(items) * kIterations * kChains * loop.macs / seconds / 1e9;
}

// The part between the first slash, if any, and the next.
std::string_view IsaOf(std::string_view backend) {
  backend.remove_prefix(backend.find('/') + 1);  // npos + 1 is 0
  return backend.substr(0, backend.find('/'));
}

}  // namespace

CpuRoofline MeasureCpuRoofline(int threads, std::string_view backend, int64_t working_set) {
  CpuRoofline roofline;
  const Loops loops = ChooseLoops(IsaOf(backend));
  // Less if little memory is free.
  const int64_t free_bytes = int64_t{::sysconf(_SC_AVPHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const int64_t size =
      std::max<int64_t>(std::min(kMemory, free_bytes / 4) / kPiece, threads) * kPiece;
  // In huge pages, as weights are.
  const Result<Buffer> memory = AllocateHostMemory(static_cast<size_t>(size));
  if (loops.read == nullptr || !memory.ok()) return roofline;
  std::byte* const data = memory->data();
  ThreadPool pool(threads);
  std::vector<Sink> sinks(static_cast<size_t>(threads));
  // Pages that were never written would all be the same page of zeros.
  pool.ParallelFor(size / kPiece, [&](int64_t item, int) {
    std::memset(data + item * kPiece, 1, static_cast<size_t>(kPiece));
  });
  const auto read_gb_s = [&](int64_t bytes, int tries) {
    bytes = std::clamp(bytes / kPiece * kPiece, kPiece, size);
    const double seconds =
        Fastest(tries, [&] { ReadAll(pool, loops.read, data, bytes, sinks.data()); });
    return static_cast<double>(bytes) / seconds / 1e9;
  };
  roofline.memory_gb_s = read_gb_s(size, 3);
  roofline.weights_gb_s = read_gb_s(working_set, 5);
  roofline.cache_gb_s = CachedGbS(pool, loops.read, data, sinks.data());
  roofline.int8_gmac_s = GmacS(pool, loops.int8, sinks.data());
  roofline.f32_gmac_s = GmacS(pool, loops.f32, sinks.data());
  roofline.bf16_gmac_s = GmacS(pool, loops.bf16, sinks.data());
  roofline.tile_gmac_s = GmacS(pool, loops.tile, sinks.data());
  return roofline;
}

}  // namespace tokamak
