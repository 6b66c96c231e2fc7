// A tokenizer as files of tokenizers describe it (Hugging Face's tokenizer.json, SentencePiece's
// models, tiktoken's ranks, Mistral's tekken.json): steps that text goes through, as plain values.
// Text → added tokens cut out → normalizers → added tokens cut out of the result → pre-tokenizers →
// the model, for each piece → the template's tokens around it. Reference: the `tokenizers` library,
// whose results count where they surprise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tokamak {

// A literal text, or a regular expression as Oniguruma has them.
struct TextPattern {
  std::string text;
  bool regex = false;
};

// Whether a piece of text gets a space before it.
enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };

struct NormalizerStep {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,         // white space at the ends: `left`, `right`
    kStripAccents,  // all marks
    kReplace,       // `pattern` by `content`
    kPrepend,       // `content`, unless the text is empty
    kPrecompiled,   // SentencePiece's charsmap in `content`
    kBert,
    kByteLevel,      // each byte as a character of GPT-2's alphabet
    kNmt,            // control characters away, white space to spaces
    kSentencePiece,  // SentencePiece's own, with the charsmap in `content` (sentencepiece_text.h)
  };
  Kind kind = Kind::kNfc;
  TextPattern pattern = {};
  std::string content = {};
  bool left = false, right = false;
  bool clean_text = false, chinese = false, strip_accents = false, lowercase = false;  // kBert
  // kSentencePiece
  PrependScheme prepend = PrependScheme::kAlways;
  bool merge_spaces = false;               // also at the ends of the text
  bool append_space = false;               // words end with the space that they would begin with
  bool escape_spaces = true;               // as ▁
  std::vector<std::string> verbatim = {};  // these stay as they are
};

// What becomes of what a pre-tokenizer finds.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // matches beside each other are one piece
};

struct PreTokenizerStep {
  enum class Kind : uint8_t {
    kByteLevel,        // GPT-2's pattern if `use_pattern`, then its alphabet
    kSplit,            // at `pattern`
    kMetaspace,        // spaces become `replacement`, and pieces begin with it if `split`
    kDigits,           // `behavior`: one by one or runs
    kPunctuation,      // `behavior`
    kWhitespace,       // \w+|[^\w\s]+
    kWhitespaceSplit,  // at white space
    kBert,             // at white space; punctuation alone
    kDelimiter,        // at `replacement`, one character
  };
  Kind kind = Kind::kSplit;
  TextPattern pattern = {};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;            // kSplit: what does not match counts as the match
  bool add_prefix_space = false;  // kByteLevel
  bool use_pattern = true;        // kByteLevel
  std::string replacement = {};
  PrependScheme prepend = PrependScheme::kAlways;  // kMetaspace
  bool split = true;                               // kMetaspace
};

struct DecoderStep {
  enum class Kind : uint8_t {
    kByteLevel,
    kMetaspace,     // `content` is a space; the first token loses those if `drop_first`
    kByteFallback,  // "<0x0A>" is that byte
    kFuse,          // what follows sees the whole text
    kStrip,         // up to `start` and `stop` characters `content` at the ends
    kReplace,
    kWordPiece,  // `content` begins tokens inside a word; spaces between others
    kBpe,        // `content` ends words
    kSpaces,     // no decoder: tokens with spaces between
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
  bool special = false;      // found only when the caller asks for it
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in normalized text
};

struct PipelineSpec {
  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizers;
  std::vector<DecoderStep> decoders;
  std::vector<AddedToken> added;
  std::vector<int32_t> before, after;  // what the template puts around the text

  // Of the model.
  std::vector<bool> in_model;                               // by id: the model can give it
  std::vector<std::pair<std::string, std::string>> merges;  // BPE, best first
  std::vector<double> scores;                               // Unigram, by id
  int32_t unk = -1;
  bool byte_fallback = false;
  bool ignore_merges = false;
  bool merge_by_id = false;    // BPE: neighbours whose text is a token merge, the lowest id first
  bool sentencepiece = false;  // Unigram: sums and user-defined tokens as SentencePiece has them
  bool fuse_unk = false;
  std::string continuing_prefix;     // of tokens inside a word: BPE, WordPiece ("##")
  std::string word_suffix;           // of tokens that end a word: BPE ("</w>")
  size_t max_word_characters = 100;  // WordPiece: a longer word is unknown
};

}  // namespace tokamak
