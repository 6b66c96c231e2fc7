#include "server/completion.h"

#include <fmt/core.h>

#include "base/hash.h"
#include "server/errors.h"

namespace tokamak {
namespace {

// Characters, as clients count text_offset.
int32_t CodePoints(std::string_view text) {
  int32_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace

Completion::Completion(Engine& engine, std::shared_ptr<HttpExchange> exchange,
                       PreparedCall prepared, ResponseHead head)
    : engine_(engine),
      exchange_(std::move(exchange)),
      call_(std::move(prepared.call)),
      prompts_(std::move(prepared.prompts)),
      answer_(std::move(prepared.answer)),
      head_(std::move(head)),
      choices_(prompts_.size() * static_cast<size_t>(call_.sampling.n)),
      open_(choices_.size()) {
  exchange_->notes.id = head_.id;
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].part.index = static_cast<int32_t>(i);
    choices_[i].part.with_logprobs = call_.sampling.logprobs.has_value();
    if (call_.return_token_ids) choices_[i].part.token_ids.emplace();
    if (answer_ != nullptr) choices_[i].parser = std::make_unique<AnswerParser>(answer_);
  }
}

Status Completion::Start() {
  for (size_t p = 0; p < prompts_.size(); ++p) {
    Request request;
    request.token_ids = prompts_[p];
    request.sampling = call_.sampling;
    request.priority = call_.priority;
    request.cache_salt = call_.cache_salt;
    request.label = head_.id;
    exchange_->notes.NotePrompt(static_cast<int32_t>(prompts_[p].size()));
    const Result<RequestId> id =
        engine_.Submit(std::move(request), [self = shared_from_this(), p](OutputChunk chunk) {
          self->exchange_->Post([self, p, chunk = std::move(chunk)]() mutable {
            self->OnChunk(p, std::move(chunk));
          });
        });
    if (!id.ok()) {
      ended_ = true;
      CancelAll();
      return id.status();
    }
    requests_.push_back(*id);
  }
  exchange_->OnClientGone([self = shared_from_this()] {
    self->ended_ = true;
    self->CancelAll();
  });
  return Status();
}

void Completion::OnChunk(size_t prompt, OutputChunk chunk) {
  if (ended_) return;
  exchange_->notes.NoteChunk(prompt, chunk);
  if (chunk.finish_reason == FinishReason::kError) return Fail(chunk.error);
  if (chunk.finish_reason == FinishReason::kCancelled) {
    return Fail(Status(StatusCode::kUnavailable, "the server is shutting down"));
  }
  head_.seed = chunk.seed;
  const size_t index = prompt * static_cast<size_t>(call_.sampling.n) + chunk.choice;
  Choice& choice = choices_[index];
  if (!choice.started) AddPrompt(prompt, choice, chunk);
  AddTokens(choice, chunk);
  if (chunk.finish_reason) {
    if (choice.parser != nullptr) AddText(choice, choice.parser->Finish());
    const bool calls = choice.tool_calls > 0 && chunk.finish_reason == FinishReason::kStop;
    // The other two have failed above.
    choice.part.finish_reason = calls ? "tool_calls" : FinishReasonName(*chunk.finish_reason);
    choice.done = true;
    --open_;
  }
  if (call_.stream) SendPart(choice);
  choice.started = true;
  if (open_ == 0) FinishAll();
}

// What stands before the first generated token: the echoed prompt and its logprobs, which the
// engine sends with choice 0 and OpenAI repeats in every choice.
void Completion::AddPrompt(size_t prompt, Choice& choice, const OutputChunk& chunk) {
  if (call_.echo) {
    choice.part.text = engine_.Detokenize(prompts_[prompt]);
    if (call_.return_token_ids) *choice.part.token_ids = prompts_[prompt];
  }
  if (!call_.sampling.prompt_logprobs || chunk.choice != 0) {
    choice.text_offset = CodePoints(choice.part.text);
    return;
  }
  std::vector<LogprobEntry> entries(1);
  entries[0].token = Text(prompts_[prompt][0]);
  for (const TokenLogprobs& logprobs : chunk.prompt_logprobs) entries.push_back(Entry(logprobs));
  int32_t offset = 0;
  for (LogprobEntry& entry : entries) {
    entry.text_offset = offset;
    offset += CodePoints(entry.token.bytes);
  }
  choice.text_offset = offset;
  if (call_.echo && call_.sampling.logprobs) choice.part.logprobs = entries;
  if (call_.return_prompt_logprobs) choice.part.prompt_logprobs = std::move(entries);
}

void Completion::AddTokens(Choice& choice, const OutputChunk& chunk) {
  if (choice.parser != nullptr) {
    AddText(choice, choice.parser->Append(chunk.text));
  } else {
    choice.part.text += chunk.text;
  }
  if (call_.return_token_ids) {
    choice.part.token_ids->insert(choice.part.token_ids->end(), chunk.token_ids.begin(),
                                  chunk.token_ids.end());
  }
  for (const TokenLogprobs& logprobs : chunk.logprobs) {
    LogprobEntry entry = Entry(logprobs);
    entry.text_offset = choice.text_offset;
    choice.text_offset += CodePoints(entry.token.bytes);
    choice.part.logprobs.push_back(std::move(entry));
  }
}

void Completion::AddText(Choice& choice, AnswerPart part) {
  choice.part.text += part.content;
  choice.part.reasoning += part.reasoning;
  for (ToolCall& call : part.calls) {
    if (!call_.parallel_tool_calls && choice.tool_calls > 0) return;
    std::string id = call.id.empty() ? CallId(choice) : std::move(call.id);
    choice.part.tool_calls.push_back(
        {choice.tool_calls, std::move(id), std::move(call.name), std::move(call.arguments)});
    ++choice.tool_calls;
  }
}

// Unlike any other of this server's. Some templates refuse ids but those of nine letters and
// digits.
std::string Completion::CallId(const Choice& choice) const {
  const std::string name = fmt::format("{}/{}/{}", head_.id, choice.part.index, choice.tool_calls);
  uint64_t hash = Hash64(name.data(), name.size());
  if (!answer_->tools->short_ids) return fmt::format("call_{:016x}", hash);
  std::string id;
  for (int i = 0; i < 9; ++i, hash /= 36) id += "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
  return id;
}

void Completion::SendPart(Choice& choice) {
  if (!streaming_) {
    streaming_ = true;
    exchange_->StartStream("text/event-stream; charset=utf-8");
  }
  ChoicePart& part = choice.part;
  part.first = !choice.started;
  const bool says_something = part.first || !part.text.empty() || !part.reasoning.empty() ||
                              !part.tool_calls.empty() || !part.logprobs.empty() ||
                              part.finish_reason.has_value() ||
                              (part.token_ids && !part.token_ids->empty());
  if (!says_something) return;  // in the middle of a character
  const bool last = open_ == 0 && !call_.include_usage;
  const ResponseTail tail = last ? Tail() : ResponseTail();
  exchange_->Write(FormatChunk(head_, part, call_.include_usage, last ? &tail : nullptr));
  part.text.clear();
  part.reasoning.clear();
  part.tool_calls.clear();
  part.logprobs.clear();
  part.prompt_logprobs.reset();
  if (part.token_ids) part.token_ids->clear();
}

void Completion::FinishAll() {
  ended_ = true;
  if (call_.stream) {
    if (call_.include_usage) exchange_->Write(FormatUsageChunk(head_, Tail()));
    exchange_->Write(std::string(kDoneEvent));
    exchange_->Finish();
    return;
  }
  std::vector<ChoicePart> parts;
  for (Choice& choice : choices_) parts.push_back(std::move(choice.part));
  exchange_->Respond({.body = FormatResponse(head_, parts, Tail())});
}

void Completion::Fail(const Status& status) {
  ended_ = true;
  CancelAll();
  if (!streaming_) {
    exchange_->Respond(ErrorResponse(status));
    return;
  }
  exchange_->Write(FormatErrorEvent(ErrorResponse(status).body));
  exchange_->Write(std::string(kDoneEvent));
  exchange_->Finish();
}

void Completion::CancelAll() {
  for (const RequestId request : requests_) engine_.Cancel(request);
}

ResponseTail Completion::Tail() const {
  ResponseTail tail = {.usage = exchange_->notes.TotalUsage()};
  if (call_.timings) tail.timings = exchange_->notes.TotalTimings();
  return tail;
}

TokenText Completion::Text(int32_t token) const {
  const std::string bytes = engine_.TokenBytes(token);
  return {.text = bytes, .bytes = bytes};
}

LogprobEntry Completion::Entry(const TokenLogprobs& logprobs) const {
  LogprobEntry entry;
  entry.token = Text(logprobs.token.token_id);
  entry.logprob = logprobs.token.logprob;
  for (const TokenLogprobs::Entry& top : logprobs.top) {
    entry.top.emplace_back(Text(top.token_id), top.logprob);
  }
  return entry;
}

}  // namespace tokamak
