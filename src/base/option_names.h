// The names of option values, for the command line, records, configuration files and responses.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "tokamak/option_values.h"
#include "tokamak/sampling_params.h"

namespace tokamak {

// The names of an enum's values, in their order.
template <typename Option>
inline constexpr auto kOptionNames = nullptr;
template <>
inline constexpr auto kOptionNames<KernelChoice> =
    std::to_array<std::string_view>({"verified", "new", "plain", "triton"});
template <>
inline constexpr auto kOptionNames<AttentionKernels> =
    std::to_array<std::string_view>({"own", "flashinfer"});
template <>
inline constexpr auto kOptionNames<CudaGraphs> = std::to_array<std::string_view>({"auto", "on",
                                                                                  "off"});
template <>
inline constexpr auto kOptionNames<KvCacheDtype> =
    std::to_array<std::string_view>({"auto", "f32", "f16", "bf16", "fp8", "q8_0"});
template <>
inline constexpr auto kOptionNames<MlaForm> = std::to_array<std::string_view>({"standard", "latent",
                                                                               "absorbed", "auto"});
template <>
inline constexpr auto kOptionNames<WorkerKind> = std::to_array<std::string_view>({"threads",
                                                                                  "processes"});
template <>
inline constexpr auto kOptionNames<Speculation> =
    std::to_array<std::string_view>({"auto", "off", "ngram", "draft"});
template <>
inline constexpr auto kOptionNames<Pooling> = std::to_array<std::string_view>({"auto", "mean",
                                                                               "cls", "last"});
template <>
inline constexpr auto kOptionNames<EarlyStopping> =
    std::to_array<std::string_view>({"false", "true", "never"});

template <typename Option>
concept NamedOption = requires {
  kOptionNames<Option>.size();
};

template <NamedOption Option>
constexpr std::string_view Name(Option value) {
  return kOptionNames<Option>[static_cast<size_t>(value)];
}

template <NamedOption Option>
constexpr std::optional<Option> ParseOption(std::string_view name) {
  const auto& names = kOptionNames<Option>;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Option>(found - names.begin());
}

}  // namespace tokamak
