#include "tokenizer/piece_decoder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/byte_tokens.h"
#include "tokenizer/replace_all.h"

namespace tokamak {
namespace {

using Kind = DecoderStep::Kind;

// Removes spaces that English spelling does not have, as `tokenizers` does for each token.
void CleanUp(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) ReplaceAll(text, from, to);
}

void Strip(std::string& text, std::string_view content, size_t start, size_t stop) {
  std::string_view view = text;
  for (size_t i = 0; i < start && view.starts_with(content); ++i)
    view.remove_prefix(content.size());
  for (size_t i = 0; i < stop && view.ends_with(content); ++i) view.remove_suffix(content.size());
  text = std::string(view);
}

}  // namespace

Result<PieceDecoder> PieceDecoder::Create(const std::vector<DecoderStep>& steps) {
  PieceDecoder decoder;
  bool fused = false;
  for (const DecoderStep& spec : steps) {
    if (fused) {
      const bool at_start = spec.kind == Kind::kStrip && spec.content == " " && spec.stop == 0;
      if (!at_start && spec.kind != Kind::kFuse) {
        return Unimplemented("a decoder after Fuse, except Strip of leading spaces");
      }
      decoder.leading_spaces_ += spec.start;
      continue;
    }
    fused = spec.kind == Kind::kFuse;
    Step step{spec, {}};
    if (spec.kind == Kind::kReplace && spec.pattern.is_regex()) {
      ASSIGN_OR_RETURN(step.regex, Regex::Compile(spec.pattern));
    }
    if (!fused) decoder.steps_.push_back(std::move(step));
  }
  return decoder;
}

std::string PieceDecoder::Decode(std::string_view spelling, bool first) const {
  std::string text(spelling);
  for (const Step& step : steps_) {
    const DecoderStep& spec = step.spec;
    switch (spec.kind) {
      case Kind::kByteLevel: {
        std::string bytes;
        if (DecodeByteAlphabet(text, bytes)) text = std::move(bytes);
        break;
      }
      case Kind::kMetaspace:
        ReplaceAll(text, spec.content, first && spec.drop_first ? "" : " ");
        break;
      case Kind::kByteFallback:
        if (const int byte = ParseByteToken(text); byte >= 0) {
          // Later steps of the chain work on text, and a lone byte is not text.
          return std::string(1, static_cast<char>(byte));
        }
        break;
      case Kind::kFuse:
        break;
      case Kind::kStrip:
        Strip(text, spec.content, spec.start, spec.stop);
        break;
      case Kind::kReplace: {
        if (!step.regex) {
          ReplaceAll(text, spec.pattern.text, spec.content);
          break;
        }
        RegexScratch scratch;
        std::string out;
        size_t from = 0;
        const Status found = step.regex->FindAll(text, scratch, [&](size_t begin, size_t end) {
          out.append(text, from, begin - from);
          out += spec.content;
          from = end;
        });
        if (!found.ok()) break;
        out.append(text, from);
        text = std::move(out);
        break;
      }
      case Kind::kWordPiece:
        if (!first && text.starts_with(spec.content)) {
          text.erase(0, spec.content.size());
        } else if (!first) {
          text.insert(0, 1, ' ');
        }
        if (spec.cleanup) CleanUp(text);
        break;
      case Kind::kBpe:
        ReplaceAll(text, spec.content, " ");
        break;
      case Kind::kSpaces:
        if (!first) text.insert(0, 1, ' ');
        break;
    }
  }
  return text;
}

}  // namespace tokamak
