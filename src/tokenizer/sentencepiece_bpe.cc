#include "tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "tokenizer/byte_fallback.h"
#include "tokenizer/escaped_space.h"
#include "tokenizer/string_index.h"
#include "tokenizer/utf8.h"

namespace tokamak {
namespace {

class SentencePieceBpe final : public TextModel {
 public:
  SentencePieceBpe(const VocabSpec& spec, const std::vector<std::string>& pieces)
      : add_space_prefix_(spec.add_space_prefix),
        scores_(spec.scores),
        bytes_(spec, pieces, spec.special.unk) {
    index_ = StringIndex(spec.tokens.size());
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      const TokenType type = spec.types[id];
      // Control tokens must not come out of ordinary text.
      if (type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kByte) {
        continue;
      }
      if (!spec.tokens[id].empty()) index_.Insert(spec.tokens[id], static_cast<int32_t>(id));
    }
  }
  Status Encode(std::string_view text, bool starts, std::vector<int32_t>& ids) const override;
  bool can_encode_anything() const { return bytes_.complete(); }

 private:
  // A linked list of adjacent parts of the text.
  struct Node {
    int32_t previous, next;  // -1: none
    uint32_t begin, size;    // in the text; size 0: merged into another
  };
  struct Candidate {
    float score;
    int32_t left;   // index of the left node
    uint32_t size;  // of both together: another size means that the candidate is outdated
    // For a max-heap: the best score, leftmost first.
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  struct Workspace {
    std::string_view text;
    std::vector<Node> nodes;
    std::vector<Candidate> heap;
  };
  void MergeAll(Workspace& work) const;
  void Propose(Workspace& work, int32_t left) const;

  const bool add_space_prefix_;
  const std::vector<float> scores_;
  const ByteFallback bytes_;
  StringIndex index_;
};

Status SentencePieceBpe::Encode(std::string_view text, bool starts,
                                std::vector<int32_t>& ids) const {
  std::string escaped;
  if (starts && add_space_prefix_) escaped = kEscapedSpace;
  AppendEscapedSpaces(text, escaped);

  Workspace work;
  work.text = escaped;
  for (size_t begin = 0; begin < escaped.size();) {
    const size_t size = Utf8Length(escaped[begin]);
    const auto index = static_cast<int32_t>(work.nodes.size());
    work.nodes.push_back(
        {index - 1, index + 1, static_cast<uint32_t>(begin), static_cast<uint32_t>(size)});
    begin += size;
  }
  work.nodes.back().next = -1;
  MergeAll(work);
  bool unknown = false;
  for (int32_t i = 0; i >= 0; i = work.nodes[i].next) {
    const std::string_view part = work.text.substr(work.nodes[i].begin, work.nodes[i].size);
    const int32_t id = index_.Find(part);
    if (id != StringIndex::kMissing) {
      ids.push_back(id);
      unknown = false;
    } else {
      unknown = bytes_.Append(part, unknown, ids);
    }
  }
  return Status();
}

// O(n log n) look-ups in the text's length.
void SentencePieceBpe::MergeAll(Workspace& work) const {
  const auto count = static_cast<int32_t>(work.nodes.size());
  for (int32_t i = 0; i + 1 < count; ++i) Propose(work, i);
  while (!work.heap.empty()) {
    std::pop_heap(work.heap.begin(), work.heap.end());
    const Candidate best = work.heap.back();
    work.heap.pop_back();
    Node& left = work.nodes[best.left];
    if (left.size == 0 || left.next < 0) continue;
    Node& right = work.nodes[left.next];
    if (left.size + right.size != best.size) continue;
    left.size += right.size;
    left.next = right.next;
    right.size = 0;
    if (left.next >= 0) work.nodes[left.next].previous = best.left;
    if (left.previous >= 0) Propose(work, left.previous);
    Propose(work, best.left);
  }
}

void SentencePieceBpe::Propose(Workspace& work, int32_t left) const {
  const Node& node = work.nodes[left];
  if (node.next < 0) return;
  const uint32_t size = node.size + work.nodes[node.next].size;
  const int32_t id = index_.Find(work.text.substr(node.begin, size));
  if (id == StringIndex::kMissing) return;
  work.heap.push_back({scores_[id], left, size});
  std::push_heap(work.heap.begin(), work.heap.end());
}

}  // namespace

Result<std::unique_ptr<const TextModel>> CreateSentencePieceBpe(
    const VocabSpec& spec, const std::vector<std::string>& pieces) {
  for (size_t id = 0; id < spec.scores.size(); ++id) {
    if (spec.scores[id] != spec.scores[id]) return InvalidArgument("token {} scores NaN", id);
  }
  auto model = std::make_unique<SentencePieceBpe>(spec, pieces);
  if (!model->can_encode_anything()) {
    return InvalidArgument("the vocabulary has neither an unknown token nor tokens for all bytes");
  }
  return std::unique_ptr<const TextModel>(std::move(model));
}

}  // namespace tokamak
