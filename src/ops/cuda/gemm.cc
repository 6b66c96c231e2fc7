#include "ops/cuda/gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/cuda/emulated.h"
#include "ops/cuda/kernels.h"

namespace tokamak::cuda {
namespace {

constexpr int64_t kFullAlignment = 16;        // bytes; more gains nothing
constexpr int64_t kMaxProbeBytes = 64 << 20;  // for a probe's output
constexpr int64_t kMinCompared = 16;          // tokens, in as many products as fit
constexpr int kMaxCandidates = 8;             // for each step of the ladder
// Up to kFewTokens skinny_gemm.h multiplies. The library's algorithms are measured for up to
// kManyTokens, because beyond that the first choice is as good.
constexpr int64_t kFewTokens = 64, kManyTokens = 256;
static_assert(kLadder[kLadder.size() - 3] >= kManyTokens);  // Choose looks two steps ahead
// Elements of weights for which algorithms are measured. For small ones it would not pay; for the
// largest, the output layers of large models, it takes long and gains little. The emulator measures
// small ones, so that this is tested.
constexpr int64_t kMinMeasuredElements = kIsEmulated ? 1 << 12 : 1 << 20;
constexpr int64_t kMaxMeasuredElements = kIsEmulated ? 1 << 14 : 1 << 28;

bool IsMeasured(const CudaWeight& weight) {
  const int64_t elements = weight.rows() * weight.cols();
  return elements >= kMinMeasuredElements && elements <= kMaxMeasuredElements;
}

// The largest power of two up to kFullAlignment that divides `bytes`.
int64_t AlignmentOf(int64_t bytes) {
  int64_t alignment = kFullAlignment;
  while (bytes % alignment != 0) alignment /= 2;
  return alignment;
}

bool IsAligned(const Tensor& tensor, int64_t alignment) {
  return (reinterpret_cast<int64_t>(tensor.data) | tensor.row_stride) % alignment == 0;
}

// A product in cuBLASLt's terms. Its matrices are column-major, so that row-major out[M, N] is its
// D[N, M] = op(A) · B with A = w, transposed, and B = x.
struct Problem {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t weight;
  cublasLtMatrixLayoutOpaque_t x;
  cublasLtMatrixLayoutOpaque_t out;

  // Strides in elements.
  cublasStatus_t Init(const CudaWeight& w, int64_t num_tokens, int64_t x_stride,
                      int64_t out_stride) {
    // Full f32 products and sums: no TF32, no bf16 partial sums.
    cublasStatus_t status = cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    status = cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof(transposed));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const auto n = static_cast<uint64_t>(w.rows());
    const auto k = static_cast<uint64_t>(w.cols());
    const auto m = static_cast<uint64_t>(num_tokens);
    status = cublasLtMatrixLayoutInit(&weight, CUDA_R_16BF, k, n, w.cols());
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    status = cublasLtMatrixLayoutInit(&x, CUDA_R_16BF, k, m, x_stride);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const auto type = w.output() == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
    return cublasLtMatrixLayoutInit(&out, type, n, m, out_stride);
  }
};

// Allows algorithms that do not split K, and fit the workspace and the operands' alignment.
cublasStatus_t InitPreference(const LinearRecipe& recipe, size_t workspace,
                              cublasLtMatmulPreferenceOpaque_t* preference) {
  cublasStatus_t status = cublasLtMatmulPreferenceInit(preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status = cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
  };
  const auto alignment = static_cast<uint32_t>(recipe.alignment);
  const auto out_alignment = static_cast<uint32_t>(recipe.out_alignment);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_alignment);
  return status;
}

bool SplitsK(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t splits = 0;
  size_t written = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(
      &algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof(splits), &written);
  return status != CUBLAS_STATUS_SUCCESS || splits > 1;
}

size_t StepFor(int64_t num_tokens) {
  size_t step = 0;
  while (step + 1 < kLadder.size() && num_tokens > kLadder[step]) ++step;
  return step;
}

// The tile for a step of the ladder up to kFewTokens: the narrowest with which all CTAs run at
// once. More of them would run in waves, of which the last leaves most SMs idle; then few large
// tiles are faster. Chosen by timing whole models with every tile
// (bench/results/2026-11-26-h200-tiles.md): a chain of equal products favours other tiles than a
// layer does.
SkinnyTile TileFor(int64_t rows, int64_t num_tokens, int64_t ctas) {
  const int tokens = static_cast<int>(std::min(num_tokens, kFewTokens));
  const std::array<SkinnyTile, 2> narrow = {
      {{16, std::min(tokens, 32)}, {tokens == kFewTokens ? 32 : 64, tokens}}};
  for (const SkinnyTile tile : narrow) {
    if (CeilDiv(rows, int64_t{tile.rows}) * (tokens / tile.tokens) <= ctas) return tile;
  }
  return {64, tokens};
}

SkinnyGemmArgs SkinnyArgs(const Linear& op, const CudaWeight& weight) {
  return {.x = op.x.data,
          .weight = weight.data(),
          .bias = static_cast<const float*>(op.bias.data),
          .out = op.out.data,
          .out_bf16 = op.out.dtype == DType::kBF16,
          .num_tokens = op.x.rows(),
          .rows = weight.rows(),
          .cols = weight.cols(),
          .x_stride = ElementStride(op.x),
          .out_stride = ElementStride(op.out)};
}

void CheckProduct(const Linear& op, const CudaWeight& weight) {
  CHECK(op.x.dtype == weight.activation() && op.x.cols() == weight.cols() &&
        op.out.cols() == weight.rows() && op.out.dtype == weight.output());
  CHECK(op.bias.empty() || op.out.dtype == DType::kF32);
}

// How a product is computed: by skinny_gemm.h if there is a tile, else by cuBLASLt if `fast`, else
// by the plain kernel.
struct Choice {
  size_t step = 0;  // of the ladder
  bool fast = false;
  std::optional<SkinnyTile> tile = {};
};

Choice ChoiceFor(const Linear& op, const LinearRecipe* recipe) {
  Choice choice = {.step = StepFor(op.x.rows())};
  if (recipe == nullptr || !IsAligned(op.x, recipe->alignment)) return choice;
  choice.fast = recipe->fast && IsAligned(op.out, recipe->out_alignment);
  // If cuBLASLt's algorithms take part, skinny_gemm.h requires an aligned output too: without it,
  // larger batches would take the plain kernel, which has other bits.
  if (choice.fast || !recipe->fast) choice.tile = recipe->skinny[choice.step];
  return choice;
}

}  // namespace

// Memory to compare algorithms with.
struct Gemm::Probe {
  int64_t max_tokens = 0;
  int64_t num_expected = 0;  // rows of `expected` that are set
  Buffer x;                  // bf16 [max_tokens, cols]
  Buffer expected;           // [max_tokens, rows], of the weight's output type
  Buffer actual;             // the same
  Buffer different;          // i32
};

Gemm::~Gemm() {
  // Waits for the device.
  if (handle_ != nullptr && !*guard_.lost()) (void)cublasLtDestroy(handle_);
  for (cudaEvent_t event : {begin_, end_}) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

Status Gemm::Start(int skinny_ctas, KernelForm form) {
  skinny_ctas_ = skinny_ctas;
  form_ = form;
  RETURN_IF_ERROR(CUDA_TRY(guard_, cublasLtCreate(&handle_)));
  RETURN_IF_ERROR(CUDA_TRY(guard_, cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)));
  for (cudaEvent_t* event : {&begin_, &end_}) {
    RETURN_IF_ERROR(CUDA_TRY(guard_, cudaEventCreateWithFlags(event, cudaEventDefault)));
  }
  ASSIGN_OR_RETURN(workspace_, AllocateMemory(guard_, kWorkspaceBytes, MemoryKind::kDevice));
  return Status();
}

Result<bool> Gemm::Multiply(const CudaWeight& weight, Probe& probe, const Method& method,
                            int64_t first, int64_t num_tokens, void* out) {
  void* const x = probe.x.data() + first * weight.cols() * static_cast<int64_t>(sizeof(uint16_t));
  if (method.algorithm == nullptr) {
    const Linear op = {.x = Tensor(x, DType::kBF16, {num_tokens, weight.cols()}),
                       .weight = &weight,
                       .bias = {},
                       .out = Tensor(out, weight.output(), {num_tokens, weight.rows()})};
    RETURN_IF_ERROR(CUDA_TRY(guard_, LaunchSkinnyGemm(SkinnyArgs(op, weight), method.tile,
                                                      skinny_ctas_, form_, stream_)));
    return true;
  }
  Problem problem;
  RETURN_IF_ERROR(CUDA_TRY(guard_, problem.Init(weight, num_tokens, weight.cols(), weight.rows())));
  const float one = 1, zero = 0;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  // An algorithm that does not take the shape after all is no error.
  RETURN_IF_ERROR(guard_.Try("cublasLtMatmul", [&] {
    status = cublasLtMatmul(handle_, &problem.operation, &one, weight.data(), &problem.weight, x,
                            &problem.x, &zero, out, &problem.out, out, &problem.out,
                            method.algorithm, workspace_.data(), workspace_.size(), stream_);
    return CUBLAS_STATUS_SUCCESS;
  }));
  return status == CUBLAS_STATUS_SUCCESS;
}

Result<bool> Gemm::Agrees(const CudaWeight& weight, Probe& probe, const Method& method,
                          int64_t num_tokens) {
  CHECK(num_tokens <= probe.num_expected);
  int32_t different = 0;
  auto* counter = reinterpret_cast<int32_t*>(probe.different.data());
  RETURN_IF_ERROR(CUDA_TRY(guard_, cudaMemsetAsync(counter, 0, sizeof(different), stream_)));
  const int64_t compared = std::min(std::max(num_tokens, kMinCompared), probe.num_expected);
  const auto out_row = static_cast<int64_t>(RowBytes(weight.output(), weight.rows()));
  for (int64_t first = 0; first + num_tokens <= compared; first += num_tokens) {
    ASSIGN_OR_RETURN(const bool ran,
                     Multiply(weight, probe, method, first, num_tokens, probe.actual.data()));
    if (!ran) return false;
    RETURN_IF_ERROR(
        CUDA_TRY(guard_, LaunchCountDifferent({.a = probe.actual.data(),
                                               .b = probe.expected.data() + first * out_row,
                                               .count = num_tokens * weight.rows(),
                                               .bf16 = weight.output() == DType::kBF16,
                                               .different = counter},
                                              stream_)));
  }
  RETURN_IF_ERROR(CUDA_TRY(guard_, cudaMemcpyAsync(&different, counter, sizeof(different),
                                                   cudaMemcpyDeviceToHost, stream_)));
  RETURN_IF_ERROR(CUDA_TRY(guard_, cudaStreamSynchronize(stream_)));
  return different == 0;
}

Result<std::vector<cublasLtMatmulAlgo_t>> Gemm::Offered(const CudaWeight& weight,
                                                        const LinearRecipe& recipe, size_t step) {
  cublasLtMatmulPreferenceOpaque_t preference;
  RETURN_IF_ERROR(CUDA_TRY(guard_, InitPreference(recipe, workspace_.size(), &preference)));
  Problem problem;
  RETURN_IF_ERROR(
      CUDA_TRY(guard_, problem.Init(weight, kLadder[step], weight.cols(), weight.rows())));
  std::array<cublasLtMatmulHeuristicResult_t, kMaxCandidates> candidates;
  int count = 0;
  RETURN_IF_ERROR(guard_.Try("cublasLtMatmulAlgoGetHeuristic", [&] {
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, &problem.operation, &problem.weight, &problem.x, &problem.out, &problem.out,
        &preference, kMaxCandidates, candidates.data(), &count);
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? CUBLAS_STATUS_SUCCESS : status;
  }));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& candidate = candidates[static_cast<size_t>(i)];
    if (candidate.state == CUBLAS_STATUS_SUCCESS && !SplitsK(candidate.algo)) {
      algorithms.push_back(candidate.algo);
    }
  }
  return algorithms;
}

// Goes down the ladder from its top. The first algorithm that runs makes the expected rows. Each
// step takes an algorithm that gives the same rows at both ends of the step's range: the fastest if
// the step is measured, else the first.
Status Gemm::Choose(const CudaWeight& weight, Probe& probe, LinearRecipe* recipe) {
  for (size_t step = kLadder.size(); step-- > 0;) {
    const int64_t low = std::min(step == 0 ? 1 : kLadder[step - 1] + 1, probe.max_tokens);
    const int64_t high = std::min(kLadder[step], probe.max_tokens);
    const bool measure = IsMeasured(weight) && kLadder[step] > kFewTokens &&
                         kLadder[step] <= std::min(kManyTokens, probe.max_tokens);
    ASSIGN_OR_RETURN(std::vector<cublasLtMatmulAlgo_t> algorithms, Offered(weight, *recipe, step));
    const auto add = [&algorithms](const cublasLtMatmulAlgo_t& algorithm) {
      const auto equals = [&](const cublasLtMatmulAlgo_t& a) {
        return std::ranges::equal(a.data, algorithm.data);
      };
      if (std::ranges::none_of(algorithms, equals)) algorithms.push_back(algorithm);
    };
    if (measure) {
      // Some algorithms that the library offers for a few tokens more, or for other weights, are
      // much faster than all that it offers here.
      for (size_t later = step + 1; later <= step + 2; ++later) add(recipe->algorithms[later]);
      for (const auto& [shape, other] : recipes_) {
        // The library offered them for that weight's alignment.
        if (std::get<DType>(shape) == weight.output() && other && other->fast &&
            other->alignment <= recipe->alignment &&
            other->out_alignment <= recipe->out_alignment) {
          add(other->algorithms[step]);
        }
      }
      RETURN_IF_ERROR(SortByTime(weight, probe, high, algorithms));
    }
    for (size_t later = step + 1; later < kLadder.size(); ++later) add(recipe->algorithms[later]);
    bool found = false;
    for (size_t i = 0; i < algorithms.size() && !found; ++i) {
      if (probe.num_expected == 0) {
        ASSIGN_OR_RETURN(const bool ran,
                         Multiply(weight, probe, {&algorithms[i]}, 0, high, probe.expected.data()));
        if (!ran) continue;
        probe.num_expected = high;
      }
      ASSIGN_OR_RETURN(found, Agrees(weight, probe, {&algorithms[i]}, high));
      if (found && low < high) {
        ASSIGN_OR_RETURN(found, Agrees(weight, probe, {&algorithms[i]}, low));
      }
      if (found) recipe->algorithms[step] = algorithms[i];
    }
    if (!found) return Status();
  }
  recipe->fast = true;
  return Status();
}

Status Gemm::SortByTime(const CudaWeight& weight, Probe& probe, int64_t num_tokens,
                        std::vector<cublasLtMatmulAlgo_t>& algorithms) {
  std::vector<std::pair<float, cublasLtMatmulAlgo_t>> timed;
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    ASSIGN_OR_RETURN(const float milliseconds,
                     Milliseconds(weight, probe, {&algorithm}, num_tokens));
    if (std::isfinite(milliseconds)) timed.emplace_back(milliseconds, algorithm);
  }
  std::ranges::stable_sort(timed, {}, [](const auto& entry) { return entry.first; });
  algorithms.clear();
  for (const auto& [milliseconds, algorithm] : timed) algorithms.push_back(algorithm);
  return Status();
}

Result<float> Gemm::Milliseconds(const CudaWeight& weight, Probe& probe, const Method& method,
                                 int64_t num_tokens) {
  float shortest = std::numeric_limits<float>::infinity();
  for (int i = 0; i < 3; ++i) {
    // Writes the workspace, which leaves little of a weight in the L2.
    RETURN_IF_ERROR(
        CUDA_TRY(guard_, cudaMemsetAsync(workspace_.data(), 0, workspace_.size(), stream_)));
    RETURN_IF_ERROR(CUDA_TRY(guard_, cudaEventRecord(begin_, stream_)));
    ASSIGN_OR_RETURN(const bool ran,
                     Multiply(weight, probe, method, 0, num_tokens, probe.actual.data()));
    RETURN_IF_ERROR(CUDA_TRY(guard_, cudaEventRecord(end_, stream_)));
    RETURN_IF_ERROR(CUDA_TRY(guard_, cudaStreamSynchronize(stream_)));
    if (!ran) return std::numeric_limits<float>::infinity();
    float milliseconds = 0;
    RETURN_IF_ERROR(CUDA_TRY(guard_, cudaEventElapsedTime(&milliseconds, begin_, end_)));
    shortest = std::min(shortest, milliseconds);
  }
  return shortest;
}

Status Gemm::ChooseSkinny(const CudaWeight& weight, Probe& probe, LinearRecipe* recipe) {
  if (skinny_ctas_ == 0 || recipe->alignment < kFullAlignment) return Status();
  for (const int64_t num_tokens : {int64_t{1}, kFewTokens}) {
    if (recipe->fast) {
      ASSIGN_OR_RETURN(recipe->fast, Agrees(weight, probe, {nullptr, kSkinnyTiles.front()},
                                            std::min(num_tokens, probe.max_tokens)));
    }
  }
  const int64_t end = recipe->fast ? kFewTokens : kLadder.back();
  for (size_t step = 0; step < kLadder.size() && kLadder[step] <= end; ++step) {
    recipe->skinny[step] = TileFor(weight.rows(), kLadder[step], skinny_ctas_);
  }
  return Status();
}

void Gemm::Report(const CudaWeight& weight, const LinearRecipe& recipe, bool disagrees) const {
  if (recipe.fast || weight.rows() * weight.cols() < 1 << 20) return;
  const char* const reason =
      disagrees ? "cuBLASLt's results differ from those of the kernel for few tokens"
                : "cuBLASLt offers no set of algorithms whose results do not depend on the batch";
  const char* const instead = recipe.skinny.back() ? "the kernel for few tokens" : "a slow kernel";
  LogWarning("weights of {} x {}: {}; {} multiplies any number of tokens with them", weight.rows(),
             weight.cols(), reason, instead);
}

Result<std::shared_ptr<const LinearRecipe>> Gemm::MakeRecipe(const CudaWeight& weight) {
  const int64_t rows = weight.rows(), cols = weight.cols();
  std::shared_ptr<const LinearRecipe>& known = recipes_[{rows, cols, weight.output()}];
  if (known) return known;
  auto recipe = std::make_shared<LinearRecipe>();
  recipe->alignment = AlignmentOf(cols * static_cast<int64_t>(sizeof(uint16_t)));
  recipe->out_alignment = AlignmentOf(rows * static_cast<int64_t>(RowBytes(weight.output(), 1)));
  Probe probe;
  const auto out_row = static_cast<int64_t>(RowBytes(weight.output(), std::max<int64_t>(1, rows)));
  probe.max_tokens = std::clamp(kMaxProbeBytes / out_row, kLadder.front(), kLadder.back());
  const auto allocate = [this](int64_t bytes) {
    return AllocateMemory(guard_, static_cast<size_t>(bytes), MemoryKind::kDevice);
  };
  const int64_t x_elements = probe.max_tokens * cols;
  ASSIGN_OR_RETURN(probe.x, allocate(x_elements * static_cast<int64_t>(sizeof(uint16_t))));
  ASSIGN_OR_RETURN(probe.expected, allocate(probe.max_tokens * out_row));
  ASSIGN_OR_RETURN(probe.actual, allocate(probe.max_tokens * out_row));
  ASSIGN_OR_RETURN(probe.different, allocate(sizeof(int32_t)));
  RETURN_IF_ERROR(
      CUDA_TRY(guard_, LaunchFillProbe({.x = reinterpret_cast<uint16_t*>(probe.x.data()),
                                        .weight = reinterpret_cast<const uint16_t*>(weight.data()),
                                        .num_tokens = probe.max_tokens,
                                        .rows = rows,
                                        .cols = cols},
                                       stream_)));
  Status status = Choose(weight, probe, recipe.get());
  const bool offered = recipe->fast;
  if (status.ok()) status = ChooseSkinny(weight, probe, recipe.get());
  // Waits even before giving up: probes in flight use memory that is about to be freed.
  const Status done = CUDA_TRY(guard_, cudaStreamSynchronize(stream_));
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(done);
  Report(weight, *recipe, /*disagrees=*/offered && !recipe->fast);
  known = std::move(recipe);
  return known;
}

Result<std::unique_ptr<CudaWeight>> Gemm::Join(const CudaStack& stack) {
  auto weight = std::make_unique<CudaWeight>(stack.size() * stack.rows(), stack.cols(),
                                             DType::kBF16, stack.buffer(), DType::kBF16);
  auto recipe = std::make_shared<LinearRecipe>();
  recipe->alignment = AlignmentOf(weight->cols() * static_cast<int64_t>(sizeof(uint16_t)));
  recipe->out_alignment = AlignmentOf(weight->rows() * static_cast<int64_t>(sizeof(uint16_t)));
  ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> algorithms,
                   Offered(*weight, *recipe, kLadder.size() - 1));
  recipe->fast = !algorithms.empty();
  if (recipe->fast) recipe->algorithms.fill(algorithms.front());
  weight->recipe = std::move(recipe);
  return weight;
}

void Gemm::Run(const Linear& op, const CudaWeight& weight, cudaStream_t stream) {
  const int64_t num_tokens = op.x.rows();
  if (num_tokens == 0) return;
  CheckProduct(op, weight);
  const int64_t x_stride = ElementStride(op.x);
  const int64_t out_stride = ElementStride(op.out);
  if (weight.is_router) {
    const RouterLinearArgs args = {.x = static_cast<const float*>(op.x.data),
                                   .weight = reinterpret_cast<const float*>(weight.data()),
                                   .bias = static_cast<const float*>(op.bias.data),
                                   .out = static_cast<float*>(op.out.data),
                                   .num_tokens = num_tokens,
                                   .rows = weight.rows(),
                                   .cols = weight.cols(),
                                   .x_stride = x_stride,
                                   .out_stride = out_stride};
    CUDA_RUN(guard_, LaunchRouterLinear(args, stream));
    return;
  }
  const Choice choice = ChoiceFor(op, weight.recipe.get());
  if (choice.tile) {
    CUDA_RUN(guard_,
             LaunchSkinnyGemm(SkinnyArgs(op, weight), *choice.tile, skinny_ctas_, form_, stream));
    return;
  }
  if (choice.fast) {
    Problem problem;
    const float one = 1, zero = 0;
    CUDA_RUN(guard_, problem.Init(weight, num_tokens, x_stride, out_stride));
    CUDA_RUN(guard_,
             cublasLtMatmul(handle_, &problem.operation, &one, weight.data(), &problem.weight,
                            op.x.data, &problem.x, &zero, op.out.data, &problem.out, op.out.data,
                            &problem.out, &weight.recipe->algorithms[choice.step],
                            workspace_.data(), workspace_.size(), stream));
  } else {
    const PlainLinearArgs args = {.x = op.x.data,
                                  .weight = weight.data(),
                                  .out = op.out.data,
                                  .num_tokens = num_tokens,
                                  .rows = weight.rows(),
                                  .cols = weight.cols(),
                                  .x_stride = x_stride,
                                  .out_stride = out_stride,
                                  .bf16 = op.x.dtype == DType::kBF16,
                                  .out_bf16 = op.out.dtype == DType::kBF16};
    CUDA_RUN(guard_, LaunchPlainLinear(args, stream));
  }
  if (op.bias.empty()) return;
  const BiasArgs bias = {.bias = static_cast<const float*>(op.bias.data),
                         .out = static_cast<float*>(op.out.data),
                         .num_tokens = num_tokens,
                         .rows = weight.rows(),
                         .out_stride = out_stride};
  CUDA_RUN(guard_, LaunchAddBias(bias, stream));
}

bool Gemm::RunGateUp(const GateUp& op, const CudaWeight& weight, cudaStream_t stream) {
  CheckProduct(op.linear, weight);
  const Choice choice = ChoiceFor(op.linear, weight.recipe.get());
  SkinnyGemmArgs args = SkinnyArgs(op.linear, weight);
  args.gated = true;
  args.activation = op.gate.activation;
  if (!choice.tile || op.gate.out.dtype != DType::kBF16 || !FitsGatedSkinnyGemm(args)) return false;
  args.out = op.gate.out.data;
  args.out_stride = ElementStride(op.gate.out);
  CUDA_RUN(guard_, LaunchSkinnyGemm(args, *choice.tile, skinny_ctas_, form_, stream));
  return true;
}

}  // namespace tokamak::cuda
