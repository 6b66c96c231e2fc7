// Linear on the device: out[M, N] = x[M, K] bf16 · w[N, K]ᵀ bf16, sums in f32, which are rounded
// once if out is bf16. By cuBLASLt, or by the plain kernel for alignments that cuBLASLt lacks. Up
// to 64 tokens by skinny_gemm.h, if the kernel table says so. If x and w are f32, all products take
// the plain kernel, except for routers', which have their own.
//
// A row of out must not depend on M. cuBLASLt picks its algorithm by M, so for each (N, K) and type
// of out a recipe is made at load: one algorithm for each step of a ladder of M, none of which
// splits K, and all of which gave bit by bit the same rows on a probe with the weight itself. If
// the library has no such set, or skinny_gemm.h gives other bits, every M of that shape takes
// skinny_gemm.h or, if that is not used, the plain kernel. Their sums do not depend on M by
// construction. Which algorithms are taken may differ between runs, GPUs and versions of the
// library; the bits do not differ between runs.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/cuda/calls.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/skinny_gemm.h"
#include "ops/cuda/weight.h"
#include "ops/ops.h"

namespace tokamak::cuda {

// Numbers of tokens up to which an algorithm is used. The last one also serves all larger numbers.
// Between 64 and 256 the time of an algorithm depends much on how its tiles fit the tokens.
inline constexpr std::array<int64_t, 18> kLadder = {8,   16,  32,  64,  80,  96,  112, 128, 144,
                                                    160, 176, 192, 208, 224, 240, 256, 512, 1024};

struct LinearRecipe {
  bool fast = false;      // cuBLASLt's algorithms take part; else only `skinny` or the plain kernel
  int64_t alignment = 0;  // bytes, of x and its rows
  int64_t out_alignment = 0;
  std::array<cublasLtMatmulAlgo_t, kLadder.size()> algorithms{};
  // Tiles for the steps of the ladder that skinny_gemm.h multiplies instead. With `fast` these are
  // steps of few tokens; otherwise all steps.
  std::array<std::optional<SkinnyTile>, kLadder.size()> skinny;
};

// Owner: the backend. There is one workspace, so products run on one stream at a time.
class Gemm {
 public:
  explicit Gemm(CallGuard& guard) : guard_(guard) {}
  ~Gemm();

  // Makes cuBLASLt's handle and workspace, which products in f32 do not need. skinny_gemm.h
  // launches up to `skinny_ctas` CTAs; 0: it is not used. `form`: of its kernels.
  Status Start(int skinny_ctas, KernelForm form);
  // For a weight in bf16, while loading. Waits for the device. Weights of one shape and type of
  // output share a recipe.
  Result<std::shared_ptr<const LinearRecipe>> MakeRecipe(const CudaWeight& weight);
  // Returns a stack's members, in bf16, as one weight that shares their memory, with outputs in
  // bf16. For products of many tokens that need not give a row the same bits in any company: any
  // number of tokens takes the library's first algorithm for the most.
  Result<std::unique_ptr<CudaWeight>> Join(const CudaStack& stack);
  void Run(const Linear& op, const CudaWeight& weight, cudaStream_t stream);
  // Runs both parts in one kernel if skinny_gemm.h multiplies so many tokens and can do that too.
  // Otherwise does nothing and returns false.
  bool RunGateUp(const GateUp& op, const CudaWeight& weight, cudaStream_t stream);

 private:
  static constexpr size_t kWorkspaceBytes = 32 << 20;
  struct Probe;
  struct Method {
    const cublasLtMatmulAlgo_t* algorithm = nullptr;  // null: skinny_gemm.h by `tile`
    SkinnyTile tile = {};
  };

  Status Choose(const CudaWeight& weight, Probe& probe, LinearRecipe* recipe);
  // Multiplies the probe's tokens from `first` on. Returns whether the method takes the shape.
  Result<bool> Multiply(const CudaWeight& weight, Probe& probe, const Method& method, int64_t first,
                        int64_t num_tokens, void* out);
  // Returns whether the method gives the expected rows.
  Result<bool> Agrees(const CudaWeight& weight, Probe& probe, const Method& method,
                      int64_t num_tokens);
  // The library's algorithms for a step of the ladder, the best first by its own count.
  Result<std::vector<cublasLtMatmulAlgo_t>> Offered(const CudaWeight& weight,
                                                    const LinearRecipe& recipe, size_t step);
  // Puts the fastest first and leaves out those that do not take the shape.
  Status SortByTime(const CudaWeight& weight, Probe& probe, int64_t num_tokens,
                    std::vector<cublasLtMatmulAlgo_t>& algorithms);
  // The time of the fastest of a few runs; infinity if the method does not take the shape.
  Result<float> Milliseconds(const CudaWeight& weight, Probe& probe, const Method& method,
                             int64_t num_tokens);
  Status ChooseSkinny(const CudaWeight& weight, Probe& probe, LinearRecipe* recipe);
  // Warns if many tokens are slow.
  void Report(const CudaWeight& weight, const LinearRecipe& recipe, bool disagrees) const;

  CallGuard& guard_;
  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;  // of probes
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  Buffer workspace_;
  int skinny_ctas_ = 0;
  KernelForm form_ = KernelForm::kHopper;
  std::map<std::tuple<int64_t, int64_t, DType>, std::shared_ptr<const LinearRecipe>> recipes_;
};

}  // namespace tokamak::cuda
