// The families of kernels in the backend, and which GPUs have passed their tests (docs/gpu.md). By
// default a GPU runs a family that has older kernels only if a GPU of its kind has passed.
// Otherwise the older ones do its work.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "ops/cuda/cuda_ops.h"

namespace tokamak::cuda {

// GPUs of one compute capability (90 stands for 9.0) are of one kind: they run the same machine
// code.
struct KernelProof {
  int capability = 0;  // 0: no proof
  std::string_view gpu = {};
  std::string_view commit = {};  // the last one whose kernels passed; bench/results has the runs
};

struct KernelFamily {
  std::string_view name;
  int only_on = 0;         // the compute capability that its code needs; 0: any
  bool has_older = false;  // other kernels can do its work
  std::array<KernelProof, 2> proofs = {};

  constexpr bool IsVerified(int capability) const {
    for (const KernelProof& proof : proofs) {
      if (proof.capability == capability) return true;
    }
    return false;
  }
};

// All kernels that no other family names.
inline constexpr KernelFamily kPlainKernels = {.name = "the plain kernels",
                                               .proofs = {{{90, "H200", "353722d"}}}};
// Only for a KV cache in FP8.
inline constexpr KernelFamily kFp8Cache = {.name = "the plain kernels for an fp8 cache",
                                           .proofs = {{{90, "H200", "2e68807"}}}};
// Two forms (kernel_form.h), so GPUs of any kind can run it.
inline constexpr KernelFamily kSkinnyGemm = {
    .name = "skinny_gemm.h", .has_older = true, .proofs = {{{90, "H200", "d05c3ea"}}}};
inline constexpr KernelFamily kGatedSkinnyGemm = {.name = "skinny_gemm.h with an activation",
                                                  .has_older = true,
                                                  .proofs = {{{90, "H200", "d05c3ea"}}}};
// Two forms, too. Without the other family it also serves prefills.
inline constexpr KernelFamily kMmaAttention = {
    .name = "mma_attention.h", .has_older = true, .proofs = {{{90, "H200", "353722d"}}}};
inline constexpr KernelFamily kWideAttention = {.name = "wide_attention.cu",
                                                .only_on = 90,
                                                .has_older = true,
                                                .proofs = {{{90, "H200", "353722d"}}}};
// Both kernels' instances for heads of other sizes than 64 and 128.
inline constexpr KernelFamily kMoreHeads = {.name = "mma_attention.h for heads of 32, 96 or 256",
                                            .has_older = true,
                                            .proofs = {{{90, "H200", "789f693"}}}};
// The parts of both kernels that cap scores and take in sinks.
inline constexpr KernelFamily kEditedScores = {
    .name = "mma_attention.h with capped scores or sinks",
    .has_older = true,
    .proofs = {{{90, "H200", "789f693"}}}};
// Only for a KV cache in FP8. The rest of these kernels is that of mma_attention.h. Two forms, too.
inline constexpr KernelFamily kFp8Attention = {
    .name = "fp8_attention_tiles.cuh", .has_older = true, .proofs = {{{90, "H200", "2e68807"}}}};
// The same for latents.
inline constexpr KernelFamily kFp8LatentAttention = {.name = "fp8_attention_tiles.cuh for latents",
                                                     .has_older = true,
                                                     .proofs = {{{90, "H200", "789f693"}}}};
// Only for models with stacks of weights: experts, or the heads of latent attention. Two forms,
// too.
inline constexpr KernelFamily kLatentAttention = {
    .name = "latent_attention.h", .has_older = true, .proofs = {{{90, "H200", "353722d"}}}};
inline constexpr KernelFamily kWideLatentAttention = {.name = "wide_latent_attention.cu",
                                                      .only_on = 90,
                                                      .has_older = true,
                                                      .proofs = {{{90, "H200", "353722d"}}}};
// Only for `--mla auto`. The older kernels absorb.
inline constexpr KernelFamily kExpandedAttention = {.name = "expanded_attention.h",
                                                    .only_on = 90,
                                                    .has_older = true,
                                                    .proofs = {{{90, "H200", "789f693"}}}};
inline constexpr KernelFamily kMoeKernels = {
    .name = "MoE layers (moe.cu, router_linear.cu, grouped_linear.cu)",
    .proofs = {{{90, "H200", "353722d"}}}};
inline constexpr KernelFamily kGroupedGemm = {
    .name = "grouped_gemm.h", .has_older = true, .proofs = {{{90, "H200", "d05c3ea"}}}};
inline constexpr KernelFamily kGatedGroupedGemm = {.name = "grouped_gemm.h with an activation",
                                                   .has_older = true,
                                                   .proofs = {{{90, "H200", "d05c3ea"}}}};
inline constexpr KernelFamily kWideGroupedGemm = {.name = "wide_grouped_gemm.cu",
                                                  .only_on = 90,
                                                  .has_older = true,
                                                  .proofs = {{{90, "H200", "d05c3ea"}}}};
// Only for models with gated delta nets, or with gates of attention outputs.
inline constexpr KernelFamily kGatedDeltaKernels = {.name = "gated_delta.cu"};
// Not in the lists below: runs only if it is asked for by name.
inline constexpr KernelFamily kTritonNorm = {.name = "triton/add_rms_norm.py"};
inline constexpr std::array kDenseFamilies = {kPlainKernels, kSkinnyGemm,    kGatedSkinnyGemm,
                                              kMmaAttention, kWideAttention, kMoreHeads,
                                              kEditedScores};
inline constexpr std::array kFp8Families = {kFp8Cache, kFp8Attention, kFp8LatentAttention};
inline constexpr std::array kStackFamilies = {
    kLatentAttention, kWideLatentAttention, kExpandedAttention, kMoeKernels,
    kGroupedGemm,     kGatedGroupedGemm,    kWideGroupedGemm};
inline constexpr std::array kKernelFamilies = {
    kPlainKernels,      kFp8Cache,           kSkinnyGemm,      kGatedSkinnyGemm,
    kMmaAttention,      kWideAttention,      kMoreHeads,       kEditedScores,
    kFp8Attention,      kFp8LatentAttention, kLatentAttention, kWideLatentAttention,
    kExpandedAttention, kMoeKernels,         kGroupedGemm,     kGatedGroupedGemm,
    kWideGroupedGemm,   kGatedDeltaKernels};

// Returns whether a GPU of this compute capability runs the family's kernels.
constexpr bool UsesKernels(const KernelFamily& family, KernelChoice choice, int capability) {
  if (family.only_on != 0 && family.only_on != capability) return false;
  if (!family.has_older || choice == KernelChoice::kNew) return true;
  return choice != KernelChoice::kPlain && family.IsVerified(capability);
}

// Returns the end of the backend's name, because other kernels may have other bits: "/plain" if no
// family runs that has older kernels, "/new" if one runs that is not verified, else "".
constexpr std::string_view NameSuffix(std::span<const KernelFamily> families, KernelChoice choice,
                                      int capability) {
  std::string_view suffix = "/plain";
  for (const KernelFamily& family : families) {
    if (!family.has_older || !UsesKernels(family, choice, capability)) continue;
    if (!family.IsVerified(capability)) return "/new";
    suffix = "";
  }
  return suffix;
}

}  // namespace tokamak::cuda
