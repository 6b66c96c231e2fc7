// One call of /v1/completions or /v1/chat/completions, from its parsed form to the last byte of its
// answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "chat/tool_calls.h"
#include "server/openai/prepare.h"
#include "server/openai/response.h"
#include "server/openai/text_maker.h"
#include "server/transport/http.h"
#include "tokamak/engine.h"

namespace tokamak {

// Owned by the callbacks it leaves with the engine, the exchange and the text maker; used on the
// I/O thread alone.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  // Choice c of prompt p is index p * n + c.
  Completion(Engine& engine, std::shared_ptr<HttpExchange> exchange, PreparedCall prepared,
             ResponseHead head, const RequestLimits& limits,
             std::shared_ptr<const TokenSizes> sizes, TextMaker make_text);

  // Submits every prompt. When the engine refuses one, nothing runs and its status comes back;
  // otherwise the exchange is answered later.
  Status Start();

 private:
  // A choice of the answer: whole when it is not streamed, else what has not been sent yet.
  struct Choice {
    ChoicePart part;
    int32_t text_offset = 0;               // code points of text so far
    std::vector<LogprobEntry> held;        // of tokens whose text the engine holds back
    std::unique_ptr<AnswerParser> parser;  // null: its text is content
    int32_t tool_calls = 0;                // so far
    size_t bytes = 0;                      // of text that `part` and `held` take at most
    bool started = false;                  // the engine has sent something of it
    bool sent = false;                     // and so have we
  };

  void OnBacklog(bool full);
  void OnChunk(size_t prompt, OutputChunk chunk);
  void AddTokens(Choice& choice, const OutputChunk& chunk);
  void AddText(Choice& choice, AnswerPart part);
  std::string CallId(const Choice& choice) const;
  void AddBytes(Choice& choice, size_t bytes);
  size_t LogprobBytes(const TokenLogprobs& logprobs) const;
  Status TooLong() const;
  void AddPrompt(size_t prompt, Choice& choice, const OutputChunk& chunk);
  bool HasUnsent(const Choice& choice) const;
  void SendPart(Choice& choice);
  ChoicePart TakePart(Choice& choice);
  void OnPieceMade(std::string text);
  void FinishStream();
  void Respond();
  void Fail(HttpResponse response);
  void FinishWithFailure();
  void CancelAll();
  ResponseTail Tail() const;
  int32_t CodePointsOf(const TokenLogprobs& logprobs) const;

  Engine& engine_;
  const std::shared_ptr<HttpExchange> exchange_;
  const CompletionCall call_;
  const std::string client_;  // as in Request
  const std::vector<std::vector<int32_t>> prompts_;
  const std::shared_ptr<const AnswerFormat> answer_;  // null: texts are content
  const size_t max_bytes_;
  const std::shared_ptr<const TokenSizes> sizes_;
  const TextMaker make_text_;
  ResponseHead head_;
  std::vector<RequestId> requests_;      // [prompts]
  std::vector<Choice> choices_;          // [prompts * n]
  size_t open_ = 0;                      // choices that have not finished
  size_t kept_ = 0;                      // bytes of text at most that are not sent yet
  std::optional<HttpResponse> failure_;  // sent after the piece that is being made
  bool streaming_ = false;               // the response has begun
  bool making_ = false;                  // a piece of it is being made: others wait, and grow
  bool ended_ = false;                   // answered, failed, or the client is gone
};

}  // namespace tokamak
