#include "ops/cpu/isa.h"

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"

namespace tokamak::cpu {
namespace {

struct Isa {
  std::string_view name;
  const Kernels* (*kernels)();
  const Int8Kernels* (*int8)();
  // The features that the ISA needs and this machine lacks; "" if none.
  std::string (*missing)();
  const Bf16Kernels* (*bf16)() = [] { return static_cast<const Bf16Kernels*>(nullptr); };
};

std::string Nothing() { return ""; }
const Int8Kernels* NoInt8Kernels() { return nullptr; }

#if defined(__x86_64__)
// __builtin_cpu_supports also checks that the operating system saves the registers.
std::string MissingAvx2() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_cpuid = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0;
  constexpr unsigned kF16c = 1u << 29;
  std::string missing;
  if (!__builtin_cpu_supports("avx2")) missing += " AVX2";
  if (!__builtin_cpu_supports("fma")) missing += " FMA";
  if (!has_cpuid || (ecx & kF16c) == 0) missing += " F16C";
  return missing;
}

std::string MissingAvx512() {
  std::string missing = MissingAvx2();
  if (!__builtin_cpu_supports("avx512f")) missing += " AVX512F";
  if (!__builtin_cpu_supports("avx512bw")) missing += " AVX512BW";
  if (!__builtin_cpu_supports("avx512dq")) missing += " AVX512DQ";
  if (!__builtin_cpu_supports("avx512vl")) missing += " AVX512VL";
  return missing;
}

std::string MissingAvxVnni() {
  std::string missing = MissingAvx2();
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvxVnni = 1u << 4;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0 || (eax & kAvxVnni) == 0) {
    missing += " AVX-VNNI";
  }
  return missing;
}

std::string MissingAvx512Vnni() {
  std::string missing = MissingAvx512();
  if (!__builtin_cpu_supports("avx512vnni")) missing += " AVX512VNNI";
  return missing;
}

std::string MissingAvx512Bf16() {
  std::string missing = MissingAvx512Vnni();
  if (!__builtin_cpu_supports("avx512bf16")) missing += " AVX512BF16";
  return missing;
}

// The operating system must permit this process to use the registers, 8 KiB more state per thread
// (Linux, arch/x86/include/uapi/asm/prctl.h).
std::string MissingAmx() {
  std::string missing = MissingAvx512Vnni();
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr unsigned kAll = kBf16 | kTile | kInt8;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAll) != kAll) {
    return missing + " AMX-INT8 and AMX-BF16";
  }
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) {
    missing += " permission to use AMX";
  }
  return missing;
}

// Slowest first. On Sapphire Rapids, AMX multiplies int8 a little faster than AVX512-VNNI, and bf16
// eight times faster than AVX512-BF16.
constexpr Isa kIsas[] = {
    {"baseline", BaselineKernels, NoInt8Kernels, Nothing},
    {"avx2", Avx2Kernels, Avx2Int8Kernels, MissingAvx2},
    {"avxvnni", Avx2Kernels, AvxVnniInt8Kernels, MissingAvxVnni},
    {"avx512", Avx512Kernels, Avx2Int8Kernels, MissingAvx512},
    {"avx512vnni", Avx512Kernels, Avx512VnniInt8Kernels, MissingAvx512Vnni},
    {"avx512bf16", Avx512Kernels, Avx512VnniInt8Kernels, MissingAvx512Bf16, Avx512Bf16Kernels},
    {"amx", Avx512Kernels, AmxInt8Kernels, MissingAmx, AmxBf16Kernels}};
#elif defined(__aarch64__)
std::string MissingNeonDot() {
  constexpr unsigned long kDotProd = 1ul << 20;  // HWCAP_ASIMDDP (Linux, asm/hwcap.h)
  return (getauxval(AT_HWCAP) & kDotProd) == 0 ? " DotProd" : "";
}

std::string MissingNeonI8mm() {
  constexpr unsigned long kI8mm = 1ul << 13;  // HWCAP2_I8MM
  return MissingNeonDot() + ((getauxval(AT_HWCAP2) & kI8mm) == 0 ? " I8MM" : "");
}

// Slowest first. The baseline is NEON; the others add integer products.
constexpr Isa kIsas[] = {{"baseline", BaselineKernels, NoInt8Kernels, Nothing},
                         {"neondot", BaselineKernels, NeonDotInt8Kernels, MissingNeonDot},
                         {"neoni8mm", BaselineKernels, NeonI8mmInt8Kernels, MissingNeonI8mm}};
#else
constexpr Isa kIsas[] = {{"baseline", BaselineKernels, NoInt8Kernels, Nothing}};
#endif

}  // namespace

std::string BackendName(const IsaKernels& isa) {
  return fmt::format("cpu/{}{}", isa.name, isa.int8 == nullptr ? kPrecise : "");
}

Result<IsaKernels> ChooseKernels(std::string_view name) {
  const bool precise = name.ends_with(kPrecise);
  if (precise) name.remove_suffix(kPrecise.size());
  const auto kernels_of = [precise](const Isa& isa) {
    if (precise) return IsaKernels{.name = isa.name, .kernels = isa.kernels()};
    return IsaKernels{isa.name, isa.kernels(), isa.int8(), isa.bf16()};
  };
  if (name == "auto") {
    IsaKernels best;
    for (const Isa& isa : kIsas) {
      if (isa.missing().empty()) best = kernels_of(isa);
    }
    return best;
  }
  for (const Isa& isa : kIsas) {
    if (isa.name != name) continue;
    const std::string missing = isa.missing();
    if (missing.empty()) return kernels_of(isa);
    return Unimplemented("this CPU cannot run the \"{}\" kernels; it lacks{}", name, missing);
  }
  return InvalidArgument("unknown CPU instruction set \"{}\"; this build has: auto, {}", name,
                         fmt::join(CpuIsaNames(), ", "));
}

}  // namespace tokamak::cpu

namespace tokamak {

std::vector<std::string> CpuIsaNames() {
  std::vector<std::string> names;
  for (const cpu::Isa& isa : cpu::kIsas) names.emplace_back(isa.name);
  return names;
}

}  // namespace tokamak
