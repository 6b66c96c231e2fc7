#include "ops/cuda/kernel_table.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tokamak::cuda {
namespace {

constexpr KernelFamily kOldest = {.name = "oldest", .proofs = {{{90, "H100", "1234567"}}}};
constexpr KernelFamily kProved = {.name = "proved",
                                  .only_on = 90,
                                  .has_older = true,
                                  .proofs = {{{80, "A100", "1234567"}, {90, "H100", "1234567"}}}};
constexpr KernelFamily kOnTrial = {.name = "on trial", .only_on = 90, .has_older = true};
constexpr KernelFamily kWithoutOlder = {.name = "without older", .only_on = 90};
constexpr KernelFamily kAnywhere = {
    .name = "anywhere", .has_older = true, .proofs = {{{80, "A100", "1234567"}}}};

bool Uses(const KernelFamily& family, KernelChoice choice, int capability = 90) {
  return UsesKernels(family, choice, capability);
}

TEST(KernelTable, VerifiedKernelsRunUnlessPlainOnesAreWanted) {
  EXPECT_TRUE(Uses(kProved, KernelChoice::kVerified));
  EXPECT_TRUE(Uses(kProved, KernelChoice::kNew));
  EXPECT_FALSE(Uses(kProved, KernelChoice::kPlain));
}

TEST(KernelTable, KernelsOnTrialRunIfNewOnesAreWanted) {
  EXPECT_FALSE(Uses(kOnTrial, KernelChoice::kVerified));
  EXPECT_TRUE(Uses(kOnTrial, KernelChoice::kNew));
  EXPECT_FALSE(Uses(kOnTrial, KernelChoice::kPlain));
}

TEST(KernelTable, AProofHoldsForItsOwnKindOfGpu) {
  EXPECT_TRUE(Uses(kAnywhere, KernelChoice::kVerified, 80));
  EXPECT_FALSE(Uses(kAnywhere, KernelChoice::kVerified, 90));
}

TEST(KernelTable, KernelsWithoutOlderOnesAlwaysRunWhereTheyCan) {
  for (const auto choice : {KernelChoice::kVerified, KernelChoice::kNew, KernelChoice::kPlain}) {
    EXPECT_TRUE(Uses(kOldest, choice, 120));
    EXPECT_TRUE(Uses(kWithoutOlder, choice, 90));
    EXPECT_FALSE(Uses(kWithoutOlder, choice, 100));
    EXPECT_FALSE(Uses(kProved, choice, 80));
  }
}

TEST(KernelTable, TheBackendsNameSaysWhichKernelsRun) {
  constexpr std::array kAll = {kOldest, kProved, kOnTrial};
  EXPECT_EQ(NameSuffix(kAll, KernelChoice::kVerified, 90), "");
  EXPECT_EQ(NameSuffix(kAll, KernelChoice::kNew, 90), "/new");
  EXPECT_EQ(NameSuffix(kAll, KernelChoice::kPlain, 90), "/plain");
  EXPECT_EQ(NameSuffix(kAll, KernelChoice::kVerified, 80), "/plain");
  EXPECT_EQ(NameSuffix(kAll, KernelChoice::kNew, 80), "/plain");
  constexpr std::array kProvedOnly = {kOldest, kProved};
  EXPECT_EQ(NameSuffix(kProvedOnly, KernelChoice::kNew, 90), "");
}

TEST(KernelTable, KernelsWithAFormForOtherGpusRunThereIfNewOnesAreWanted) {
  for (const int capability : {80, 86, 89, 120}) {
    for (const KernelFamily& family :
         {kSkinnyGemm, kGatedSkinnyGemm, kMmaAttention, kMoreHeads, kEditedScores, kFp8Attention,
          kLatentAttention, kFp8LatentAttention, kGroupedGemm, kGatedGroupedGemm}) {
      EXPECT_TRUE(Uses(family, KernelChoice::kNew, capability)) << family.name;
      EXPECT_FALSE(Uses(family, KernelChoice::kVerified, capability)) << family.name;
    }
    for (const KernelFamily& family :
         {kWideAttention, kWideGroupedGemm, kWideLatentAttention, kExpandedAttention}) {
      EXPECT_FALSE(Uses(family, KernelChoice::kNew, capability)) << family.name;
    }
    EXPECT_EQ(NameSuffix(kKernelFamilies, KernelChoice::kNew, capability), "/new");
    EXPECT_EQ(NameSuffix(kKernelFamilies, KernelChoice::kVerified, capability), "/plain");
  }
}

TEST(KernelTable, TheChoiceShowsInTheNameOfACudaBackend) {
  const auto name = [](const CudaOptions& options) -> Result<std::string> {
    ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, MakeCudaOps(options));
    return std::string(ops->name());
  };
  const auto plain = name({.threads = 1, .kernels = KernelChoice::kPlain});
  if (!plain.ok()) GTEST_SKIP() << "no CUDA backend here: " << plain.status().ToString();
  EXPECT_TRUE(plain->ends_with("/plain")) << *plain;
  const auto verified = name({.threads = 1});
  ASSERT_TRUE(verified.ok()) << verified.status().ToString();
  EXPECT_FALSE(verified->ends_with("/new")) << *verified;
  // On Hopper.
  if (verified->starts_with(kCudaEmulated) || verified->starts_with("cuda/sm_90")) {
    EXPECT_FALSE(verified->ends_with("/plain")) << *verified;
  }
}

// Tests that the backend's name shows these options, or that a build without what they need says
// so.
void ExpectInNameOrRefused(const CudaOptions& options, const char* suffix, const char* needed) {
  const auto made = MakeCudaOps(options);
  if (made.ok()) {
    EXPECT_TRUE((*made)->name().ends_with(suffix)) << (*made)->name();
    return;
  }
  const Status& status = made.status();
  if (status.code() != StatusCode::kInvalidArgument) {
    GTEST_SKIP() << "no CUDA backend here: " << status.ToString();
  }
  EXPECT_NE(status.message().find(needed), std::string::npos) << status.ToString();
}

TEST(KernelTable, ACudaBackendWithoutTritonsKernelsRefusesToUseThem) {
  ExpectInNameOrRefused({.threads = 1, .kernels = KernelChoice::kTriton}, "/triton",
                        "TOKAMAK_TRITON");
}

TEST(KernelTable, ACudaBackendWithoutFlashInferRefusesToUseIt) {
  ExpectInNameOrRefused({.threads = 1, .flashinfer = true}, "/flashinfer", "TOKAMAK_FLASHINFER");
}

}  // namespace
}  // namespace tokamak::cuda
