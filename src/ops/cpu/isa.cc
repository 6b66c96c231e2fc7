#include "ops/cpu/isa.h"

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"

namespace tokamak::cpu {
namespace {

struct Isa {
  std::string_view name;
  const Kernels* (*kernels)();
  // What this machine lacks of what the ISA needs, "" for nothing.
  std::string (*missing)();
};

std::string Nothing() { return ""; }

#if defined(__x86_64__)
// __builtin_cpu_supports also asks whether the operating system saves the registers.
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

constexpr Isa kIsas[] = {{"baseline", BaselineKernels, Nothing},
                         {"avx2", Avx2Kernels, MissingAvx2},
                         {"avx512", Avx512Kernels, MissingAvx512}};
#else
constexpr Isa kIsas[] = {{"baseline", BaselineKernels, Nothing}};
#endif

}  // namespace

Result<const Kernels*> ChooseKernels(std::string_view name) {
  if (name == "auto") {
    const Kernels* best = nullptr;
    for (const Isa& isa : kIsas) {
      if (isa.missing().empty()) best = isa.kernels();
    }
    return best;
  }
  for (const Isa& isa : kIsas) {
    if (isa.name != name) continue;
    const std::string missing = isa.missing();
    if (missing.empty()) return isa.kernels();
    return Unimplemented("this CPU cannot run the \"{}\" kernels: it lacks{}", name, missing);
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
