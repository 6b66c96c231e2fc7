#include "server/routes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "server/errors.h"
#include "server/json_text.h"
#include "server/monitor/metrics.h"
#include "server/page/page.h"

namespace tokamak {
namespace {

// Parameters, such as a charset, come after the type (RFC 9110, section 8.3.1).
bool IsJson(std::string_view content_type) {
  return EqualIgnoringCase(Trim(content_type.substr(0, content_type.find(';'))),
                           "application/json");
}

// Returns what is wrong with the headers of a body, or "". A page in a browser can send text with
// other types to any server, but JSON only if the server agrees. access.h refuses pages too; this
// check is for browsers that do not say which page sends a request.
std::string_view BodyFormatError(const HttpRequest& request) {
  if (!IsJson(request.Header("content-type"))) {
    return "send the body with \"Content-Type: application/json\"";
  }
  const std::string_view coding = request.Header("content-encoding");
  if (!coding.empty() && !EqualIgnoringCase(coding, "identity")) {
    return "send the body as it is: no Content-Encoding is supported";
  }
  return "";
}

}  // namespace

Routes::Routes(ServedModel served, const Access& access, const Observer& observer,
               boost::asio::io_context& io, Options options)
    : loaded_(served.loaded),
      observer_(observer),
      options_(std::move(options)),
      started_(std::time(nullptr)),
      debug_state_(served.loaded,
                   {.version = options_.version,
                    .model_id = options_.openai.model_id,
                    .started = static_cast<double>(started_)},
                   io),
      preparation_(options_.preparing),
      openai_({served, access, preparation_, text_maker_}, options_.openai) {}

bool Routes::IsPublic(std::string_view path) {
  return path == "/health" || path == "/openapi.json";
}

bool Routes::IsGetPath(std::string_view path) const {
  return path == "/health" || path == "/metrics" || path == "/debug/state" ||
         OpenAiApi::IsGetPath(path) || (options_.page && IsPage(path));
}

Awaitable<> Routes::Handle(ResponseWriter& writer) {
  const HttpRequest& request = writer.request();
  const auto& posts = OpenAiApi::kPostPaths;
  const bool post = std::find(posts.begin(), posts.end(), request.path) != posts.end();
  if (!post && !IsGetPath(request.path)) {
    co_return writer.Respond(ErrorResponse(
        404, fmt::format("no such path; there are {}, /v1/models, /openapi.json, /metrics, "
                         "/debug/state and /health",
                         fmt::join(posts, ", "))));
  }
  const bool allowed =
      post ? request.method == "POST" : request.method == "GET" || request.method == "HEAD";
  if (!allowed) {
    const char* const method = post ? "POST" : "GET";
    HttpResponse response = ErrorResponse(
        405, fmt::format("{} takes {}, not {}", request.path, method, request.method));
    response.headers.emplace_back("Allow", method);
    co_return writer.Respond(std::move(response));
  }
  if (post) {
    co_await Post(writer);
  } else if (request.path == "/debug/state") {
    co_await debug_state_.Handle(writer);
  } else {
    Get(writer);
  }
}

void Routes::Get(ResponseWriter& writer) {
  const HttpRequest& request = writer.request();
  if (request.path == "/health") return writer.Respond(Health());
  if (request.path == "/metrics") return writer.Respond(Metrics());
  if (OpenAiApi::IsGetPath(request.path)) return openai_.Get(writer);
  writer.Respond(PageResponse(request));
}

Awaitable<> Routes::Post(ResponseWriter& writer) {
  if (const std::string_view error = BodyFormatError(writer.request()); !error.empty()) {
    co_return writer.Respond(ErrorResponse(415, error));
  }
  if (preparation_.draining()) co_return writer.Respond(ShuttingDownResponse());
  co_await openai_.Post(writer);
}

void Routes::Stop() {
  preparation_.Stop();
  text_maker_.Stop();
  debug_state_.Stop();
  if (const auto& web = options_.openai.images.web) web->Stop();
}

Routes::HealthState Routes::CheckHealth(const EngineStats& stats) const {
  if (const Status status = loaded_.health(); !status.ok()) {
    return {"failed", std::string(status.message())};
  }
  if (preparation_.draining()) return {"draining", ""};
  if (!stats.restarting.empty()) return {"restarting", stats.restarting};
  if (stats.seconds_since_progress > options_.stuck_seconds) return {"stuck", ""};
  const double seconds = preparation_.longest_seconds().value_or(-1);
  if (seconds < options_.preparing.stuck_seconds) return {"ok", ""};
  return {"stuck",
          fmt::format("a request has been read, rendered or tokenized for {:.0f} s, and should "
                      "have taken less than {:.0f}; others may wait behind it until the server is "
                      "started again",
                      seconds, options_.preparing.stuck_seconds)};
}

HttpResponse Routes::Health() const {
  const EngineStats stats = loaded_.stats();
  const HealthState state = CheckHealth(stats);
  nlohmann::ordered_json health = {{"status", state.name},
                                   {"model", loaded_.model().name},
                                   {"backend", loaded_.model().backend},
                                   {"preparing", preparation_.size()},
                                   {"running", stats.running},
                                   {"waiting", stats.waiting},
                                   {"paused", stats.paused},
                                   {"total_blocks", stats.total_blocks},
                                   {"used_blocks", stats.used_blocks},
                                   {"cached_blocks", stats.cached_blocks},
                                   {"steps", stats.steps},
                                   {"prompt_tokens", stats.prompt_tokens},
                                   {"generated_tokens", stats.generated_tokens},
                                   {"cached_prompt_tokens", stats.cached_prompt_tokens},
                                   {"preemptions", stats.preemptions},
                                   {"seconds_since_progress", stats.seconds_since_progress}};
  if (!state.error.empty()) health["error"] = state.error;
  HttpResponse response;
  response.status = state.name == "ok" ? 200 : 503;
  response.body = DumpJson(health);
  return response;
}

HttpResponse Routes::Metrics() const {
  MetricsInput input;
  input.engine = loaded_.stats();
  input.healthy = CheckHealth(input.engine).name == "ok";
  input.http = observer_.counters();
  input.log_lines_dropped = observer_.lines_dropped();
  input.version = options_.version;
  input.fingerprint = loaded_.system_fingerprint();
  input.model = options_.openai.model_id;
  input.backend = loaded_.model().backend;
  input.takes_images = loaded_.model().images.has_value();
  input.mask_table_seconds = loaded_.model().mask_table_seconds;
  input.mask_table_bytes = loaded_.model().mask_table_bytes;
  input.preparing = preparation_.size();
  input.unknown_fields = openai_.unknown_fields();
  input.started = static_cast<double>(started_);
  HttpResponse response;
  response.content_type = kMetricsContentType;
  response.body = FormatMetrics(input);
  return response;
}

}  // namespace tokamak
