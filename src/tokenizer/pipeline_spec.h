// How a tokenizer encodes and decodes, as plain values. Readers of all formats make it (Hugging
// Face's tokenizer.json, GGUF, SentencePiece's models, tiktoken's ranks, Mistral's tekken.json).
// Text goes through these steps: cut out added tokens; normalize; cut out added tokens of the
// normalized text; pre-tokenize; encode each piece with the model; put the template's tokens around
// the ids. Reference: the `tokenizers` library, even where its results are surprising.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tokamak {

// A literal text, or a regular expression.
struct TextPattern {
  enum class Syntax : uint8_t {
    kLiteral,
    kOniguruma,  // Ruby's
    kPcre,       // PCRE2's; such a pattern is our own, so matching takes time linear in the text
  };
  std::string text;
  Syntax syntax = Syntax::kLiteral;

  bool is_regex() const { return syntax != Syntax::kLiteral; }
};

// When a piece of text gets a space before it.
enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };

struct NormalizerStep {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,         // removes white space at the ends: `left`, `right`
    kStripAccents,  // removes all marks
    kReplace,       // replaces `pattern` by `content`
    kPrepend,       // puts `content` before a text that is not empty
    kPrecompiled,   // applies SentencePiece's charsmap in `content`
    kBert,
    kByteLevel,      // spells each byte in GPT-2's alphabet
    kNmt,            // removes control characters, turns white space into spaces
    kSentencePiece,  // SentencePiece's normalization, charsmap in `content` (sentencepiece_text.h)
  };
  Kind kind = Kind::kNfc;
  TextPattern pattern = {};
  std::string content = {};
  bool left = false, right = false;
  bool clean_text = false, chinese = false, strip_accents = false, lowercase = false;  // kBert
  // kSentencePiece
  PrependScheme prepend = PrependScheme::kAlways;
  bool merge_spaces = false;  // also at the ends of the text
  bool append_space = false;  // words end with the space that would otherwise begin them
  bool escape_spaces = true;  // as ▁
  std::vector<std::string> verbatim = {};  // left unchanged
};

// Treatment of a pre-tokenizer's matches.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // adjacent matches form one piece
};

struct PreTokenizerStep {
  enum class Kind : uint8_t {
    kByteLevel,        // GPT-2's pattern if `use_pattern`, then GPT-2's alphabet
    kSplit,            // at `pattern`
    kMetaspace,        // spaces become `replacement`, and pieces begin with it if `split`
    kDigits,           // `behavior`: one by one or in runs
    kPunctuation,      // `behavior`
    kWhitespace,       // \w+|[^\w\s]+
    kWhitespaceSplit,  // at white space
    kBert,             // at white space; punctuation becomes pieces of its own
    kDelimiter,        // at `replacement`, a single character
    // Groups of three digits, counted from the end of a number. The last kind cuts only before each
    // group; the others also cut before and after the number.
    kNumberGroups,        // of \p{N}
    kWordEndDigitGroups,  // of \d, unless a word character follows the number
    kDigitGroups,         // of \d
  };
  Kind kind = Kind::kSplit;
  TextPattern pattern = {};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;            // kSplit: match what the pattern does not
  bool add_prefix_space = false;  // kByteLevel
  bool use_pattern = true;        // kByteLevel
  std::string replacement = {};
  PrependScheme prepend = PrependScheme::kAlways;  // kMetaspace
  bool split = true;                               // kMetaspace
};

struct DecoderStep {
  enum class Kind : uint8_t {
    kByteLevel,
    kMetaspace,     // `content` becomes a space; with `drop_first` the first token loses it
    kByteFallback,  // "<0x0A>" becomes that byte
    kFuse,          // later steps see the whole text
    kStrip,         // removes up to `start` and `stop` characters `content` at the ends
    kReplace,
    kWordPiece,  // `content` begins tokens inside a word; puts spaces before others
    kBpe,        // `content` ends a word
    kSpaces,     // no decoder: puts spaces between tokens
  };
  Kind kind = Kind::kFuse;
  TextPattern pattern = {};
  std::string content = {};
  size_t start = 0, stop = 0;
  bool drop_first = false;
  bool cleanup = false;
};

struct AddedToken {
  int32_t id = -1;
  bool special = false;      // found only with parse_special
  bool single_word = false;  // not found inside a word
  bool lstrip = false;       // absorbs the white space before it
  bool rstrip = false;       // absorbs the white space after it
  bool normalized = false;   // searched in normalized text
};

struct PipelineSpec {
  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizers;
  std::vector<DecoderStep> decoders;
  std::vector<AddedToken> added;
  std::vector<int32_t> before, after;  // the template's tokens around the text

  // The model.
  std::vector<bool> in_model;                               // by id: the model can produce it
  std::vector<std::pair<std::string, std::string>> merges;  // BPE, best first
  std::vector<double> scores;                               // Unigram, SentencePiece BPE: by id
  int32_t unk = -1;
  bool byte_fallback = false;
  bool ignore_merges = false;
  bool merge_by_id = false;  // BPE: neighbours merge if together they are a token, lowest id first
  // BPE: merges are of strings, which need not be tokens. What is no token in the end is spelled in
  // bytes.
  bool merge_strings = false;
  bool whole_newlines = false;  // BPE: a piece of newlines that is a token is that token
  bool sentencepiece = false;   // rounds sums and treats user-defined tokens as its library does
  bool fuse_unk = false;
  std::string continuing_prefix;     // of tokens inside a word: BPE, WordPiece ("##")
  std::string word_suffix;           // of tokens that end a word: BPE ("</w>")
  std::string word_prefix;           // put before each word: WordPiece of GGUF files ("▁")
  size_t max_word_characters = 100;  // WordPiece: longer words are unknown
};

}  // namespace tokamak
