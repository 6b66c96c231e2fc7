// Follows given tokens through given JSON schemas and prints times, for bench/compare_grammars.py;
// or draws answers at random, for tests/e2e/test_grammar.py.
//
// grammar_probe VOCABULARY [MASKS]: the file VOCABULARY has the number of tokens, then each token's
// size and bytes (uint32, this machine's order). Each line of the input is {"schema": text,
// "tokens": [id, ...], "whitespace": pattern}; each line of the output has "error", or the times of
// compiling and of each mask in microseconds and the number of tokens that were allowed. Masks are
// appended to MASKS.
#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json_value.h"
#include "grammar/grammar.h"

namespace {

using tokamak::CompileGrammar;
using tokamak::Grammar;
using tokamak::GrammarSpec;
using tokamak::JsonValue;
using tokamak::Matcher;
using tokamak::Status;
using tokamak::Vocabulary;

double Microseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - since)
      .count();
}

std::vector<std::string> ReadTokens(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const auto number = [&] {
    uint32_t value = 0;
    file.read(reinterpret_cast<char*>(&value), sizeof(value));
    return value;
  };
  std::vector<std::string> tokens(number());
  for (std::string& token : tokens) {
    token.resize(number());
    file.read(token.data(), static_cast<std::streamsize>(token.size()));
  }
  return tokens;
}

// Compiles a request's schema. If that fails, returns null and adds the error to the answer.
std::shared_ptr<const Grammar> Compile(const JsonValue& request, JsonValue& answer) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kJsonSchema;
  spec.text = *request.Find("schema")->AsString();
  if (const JsonValue* pattern = request.Find("whitespace")) {
    spec.whitespace = GrammarSpec::Whitespace::kPattern;
    spec.whitespace_pattern = *pattern->AsString();
  }
  auto grammar = CompileGrammar(spec);
  if (grammar.ok()) return *std::move(grammar);
  answer.Set("error", std::string(grammar.status().message()));
  return nullptr;
}

JsonValue Follow(const JsonValue& request, const std::shared_ptr<const Vocabulary>& vocabulary,
                 std::ofstream& masks) {
  JsonValue answer;
  const auto start = std::chrono::steady_clock::now();
  const auto grammar = Compile(request, answer);
  const double compile = Microseconds(start);
  if (grammar == nullptr) return answer;
  Matcher matcher(grammar, vocabulary);
  std::vector<uint32_t> mask((vocabulary->size() + 31) / 32);
  JsonValue::Array times;
  size_t taken = 0;
  for (const JsonValue& token : *request.Find("tokens")->AsArray()) {
    const auto before = std::chrono::steady_clock::now();
    const Status status = matcher.FillMask(mask);
    times.emplace_back(Microseconds(times.empty() ? start : before));
    masks.write(reinterpret_cast<const char*>(mask.data()),
                static_cast<std::streamsize>(mask.size() * sizeof(uint32_t)));
    if (!status.ok() || !matcher.Accept(static_cast<int32_t>(*token.AsInt()))) break;
    ++taken;
  }
  answer.Set("compile_us", compile);
  answer.Set("mask_us", std::move(times));  // the first one includes compiling
  answer.Set("taken", static_cast<int64_t>(taken));
  answer.Set("complete", matcher.complete());
  answer.Set("bytes", static_cast<int64_t>(grammar->bytes()));
  return answer;
}

// An answer drawn from the masks. Tokens of one character that end something are drawn more often,
// so that answers end.
std::optional<std::string> Draw(Matcher& matcher, const std::vector<std::string>& tokens,
                                std::mt19937& random) {
  constexpr int kMaxTokens = 500, kLong = 40;
  std::string text;
  std::vector<uint32_t> mask((tokens.size() + 31) / 32);
  for (int i = 0; i < kMaxTokens; ++i) {
    if (matcher.complete() && (matcher.finished() || i > kLong || random() % 3 == 0)) return text;
    if (!matcher.FillMask(mask).ok()) return std::nullopt;
    std::vector<int32_t> allowed, ends;
    for (size_t t = 0; t < tokens.size(); ++t) {
      if ((mask[t / 32] >> (t % 32) & 1) == 0) continue;
      allowed.push_back(static_cast<int32_t>(t));
      if (tokens[t].find_first_not_of("\"]}0") == std::string::npos) ends.push_back(allowed.back());
    }
    if (allowed.empty()) return std::nullopt;
    const bool end = !ends.empty() && (i > kLong || random() % 2 == 0);
    const std::vector<int32_t>& from = end ? ends : allowed;
    const int32_t token = from[random() % from.size()];
    if (!matcher.Accept(token)) return std::nullopt;
    text += tokens[static_cast<size_t>(token)];
  }
  return std::nullopt;
}

JsonValue DrawAnswers(const JsonValue& request, const std::vector<std::string>& tokens,
                      const std::shared_ptr<const Vocabulary>& vocabulary, std::mt19937& random) {
  JsonValue answer;
  const auto grammar = Compile(request, answer);
  if (grammar == nullptr) return answer;
  JsonValue::Array answers;
  for (int64_t i = 0; i < *request.Find("draw")->AsInt(); ++i) {
    Matcher matcher(grammar, vocabulary);
    if (auto text = Draw(matcher, tokens, random)) answers.emplace_back(*std::move(text));
  }
  answer.Set("answers", std::move(answers));
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: grammar_probe VOCABULARY [MASKS]\n");
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> tokens = ReadTokens(argv[1]);
  const auto vocabulary = Vocabulary::Make(tokens);
  fmt::print(stderr, "vocabulary: {} tokens, {} bytes, {:.0f} ms\n", vocabulary->size(),
             vocabulary->bytes(), Microseconds(start) / 1000);
  std::mt19937 random(1);
  std::ofstream masks;
  if (argc > 2) masks.open(argv[2], std::ios::binary);
  for (std::string line; std::getline(std::cin, line);) {
    const std::optional<JsonValue> request = JsonValue::Parse(line, {});
    if (!request) return 1;
    const bool draw = request->Find("draw") != nullptr;
    fmt::print("{}\n", draw ? DrawAnswers(*request, tokens, vocabulary, random).Dump()
                            : Follow(*request, vocabulary, masks).Dump());
    std::fflush(stdout);
  }
  return 0;
}
