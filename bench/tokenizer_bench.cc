// Microbenchmarks of the tokenizer: bytes of text per second on one core.
//
//   tokenizer_bench [MODEL [TEXT...]] [--benchmark_filter=encode]
//
// MODEL is a .gguf file, a Hugging Face directory or a tokenizer file. By default: the default
// model, and the English texts of licences that Debian installs.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/paths.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/load/open_tokenizer.h"

namespace tokamak {
namespace {

using Shared = std::shared_ptr<const Tokenizer>;

void Encode(benchmark::State& state, const Shared& tokenizer, const std::string& text) {
  size_t tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer->Encode(text);
    if (!ids.ok()) state.SkipWithError(ids.status().ToString().c_str());
    if (ids.ok()) tokens = ids->size();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
}

void Decode(benchmark::State& state, const Shared& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = *tokenizer->Encode(text);
  for (auto _ : state) {
    Detokenizer stream(tokenizer);
    for (const int32_t id : ids) benchmark::DoNotOptimize(stream.Append(id));
    benchmark::DoNotOptimize(stream.Flush());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ids.size()));
}

void Create(benchmark::State& state, const std::string& model) {
  for (auto _ : state) {
    if (const auto tokenizer = OpenTokenizer(model); !tokenizer.ok()) {
      state.SkipWithError(tokenizer.status().ToString().c_str());
    }
  }
}

std::string English(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) {
    if (auto part = ReadWholeFile(file, 32 << 20); part.ok()) text += *part;
  }
  return text;
}

std::string Repeat(std::string_view unit, size_t size) {
  std::string text;
  while (text.size() < size) text += unit;
  return text;
}

void RegisterAll(const std::string& model, const std::vector<std::string>& files) {
  const auto opened = OpenTokenizer(model);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().ToString().c_str());
    std::exit(1);
  }
  const auto add = [](const std::string& name, auto&&... args) {
    benchmark::RegisterBenchmark(name.c_str(), args...)->Unit(benchmark::kMillisecond);
  };
  add("create", Create, model);
  const std::string english = English(files);
  add("encode/english", Encode, *opened, english);
  add("decode/english", Decode, *opened, english);
  constexpr size_t kMegabyte = 1000000;
  add("encode/one_letter", Encode, *opened, Repeat("a", kMegabyte));
  add("encode/spaces", Encode, *opened, Repeat(" ", kMegabyte));
  add("encode/digits", Encode, *opened, Repeat("7", kMegabyte));
  add("encode/chinese", Encode, *opened, Repeat("我想在苹果公司工作。", kMegabyte));
  add("encode/invalid", Encode, *opened, Repeat("\xFF", kMegabyte));
}

}  // namespace
}  // namespace tokamak

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::string model = argc > 1 ? argv[1] : tokamak::DefaultModelPath();
  std::vector<std::string> files(argv + (argc > 2 ? 2 : argc), argv + argc);
  std::error_code ignored;
  if (files.empty()) {
    for (const auto& entry :
         std::filesystem::directory_iterator("/usr/share/common-licenses", ignored)) {
      files.push_back(entry.path());
    }
  }
  tokamak::RegisterAll(model, files);
  benchmark::RunSpecifiedBenchmarks();
}
