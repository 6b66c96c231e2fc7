// The effect of int8 activations: a model's distribution of the next token with the kernels of an
// ISA, compared with f32 activations and the same weights (KL divergence, most likely token,
// perplexity). The text is read in windows of 512 tokens, of which the second half counts.
//
//   quality MODEL.gguf TEXT [ISA] [KV cache type: F16, F32, ...]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/check.h"
#include "models/testing/backends.h"
#include "models/testing/golden.h"
#include "models/testing/harness.h"
#include "tokenizer/load/open_tokenizer.h"

namespace tokamak {
namespace {

using testing::Harness;
constexpr int32_t kWindow = 512;

// Replaces logits by their log softmax; returns the index of the largest.
int32_t Normalize(Harness::Logits* logits) {
  const auto highest = std::max_element(logits->begin(), logits->end());
  double sum = 0;
  for (const float logit : *logits) sum += std::exp(double{logit} - *highest);
  const auto shift = static_cast<float>(*highest + std::log(sum));
  const auto index = static_cast<int32_t>(highest - logits->begin());
  for (float& logit : *logits) logit -= shift;
  return index;
}

struct Totals {
  std::vector<double> divergences;
  int64_t same_top = 0;
  double exact_logprob = 0, fast_logprob = 0;
};

void Compare(Harness::Logits exact, Harness::Logits fast, int32_t next, Totals* totals) {
  const int32_t exact_top = Normalize(&exact), fast_top = Normalize(&fast);
  double divergence = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    divergence += std::exp(double{exact[i]}) * (double{exact[i]} - fast[i]);
  }
  totals->divergences.push_back(divergence);
  totals->same_top += exact_top == fast_top ? 1 : 0;
  totals->exact_logprob += exact[static_cast<size_t>(next)];
  totals->fast_logprob += fast[static_cast<size_t>(next)];
}

// A model with its weights packed for one backend.
struct Loaded {
  Loaded(const std::string& path, const std::string& backend)
      : ops(testing::MakeBackend(backend)),
        model(testing::LoadOrDie(path, *ops, {.max_context = kWindow, .progress = nullptr})) {}
  std::vector<Harness::Logits> Run(const std::vector<int32_t>& tokens, DType kv) {
    Harness harness(*model, *ops, {.max_tokens = kWindow, .kv_dtype = kv});
    return harness.Run(tokens, kWindow / 2);
  }
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
};

int Main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print("usage: {} MODEL.gguf TEXT [ISA] [KV]\n", argv[0]);
    return 2;
  }
  const std::string isa = argc > 3 ? argv[3] : "auto";
  DType kv = DType::kF16;
  for (int i = 0; argc > 4 && i < kNumDTypes; ++i) {
    if (Name(static_cast<DType>(i)) == argv[4]) kv = static_cast<DType>(i);
  }
  std::ifstream file(argv[2]);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto tokenizer = OpenTokenizer(argv[1]);
  CHECK_MSG(tokenizer.ok(), tokenizer.status().ToString());
  const auto encoded = (*tokenizer)->Encode(text);
  CHECK_MSG(encoded.ok(), encoded.status().ToString());
  const std::vector<int32_t>& tokens = *encoded;

  Loaded exact(argv[1], "cpu/auto/precise"), fast(argv[1], "cpu/" + isa);
  Totals totals;
  for (size_t begin = 0; begin + kWindow < tokens.size(); begin += kWindow) {
    const std::vector<int32_t> window(tokens.begin() + static_cast<int64_t>(begin),
                                      tokens.begin() + static_cast<int64_t>(begin + kWindow));
    auto a = exact.Run(window, DType::kF32), b = fast.Run(window, kv);
    for (size_t i = 0; i < a.size(); ++i) {
      const size_t next = begin + kWindow / 2 + i + 1;
      Compare(std::move(a[i]), std::move(b[i]), tokens[next], &totals);
    }
  }
  std::sort(totals.divergences.begin(), totals.divergences.end());
  const auto n = static_cast<double>(totals.divergences.size());
  CHECK_MSG(n > 0, "the text is shorter than a window");
  double sum = 0;
  for (const double d : totals.divergences) sum += d;
  fmt::print(
      "{} positions, KL divergence mean {:.6f} median {:.6f} p99 {:.6f}, same top {:.3f}%, "
      "perplexity {:.4f} against {:.4f}\n",
      n, sum / n, totals.divergences[totals.divergences.size() / 2],
      totals.divergences[totals.divergences.size() * 99 / 100],
      100 * static_cast<double>(totals.same_top) / n, std::exp(-totals.fast_logprob / n),
      std::exp(-totals.exact_logprob / n));
  return 0;
}

}  // namespace
}  // namespace tokamak

int main(int argc, char** argv) { return tokamak::Main(argc, argv); }
