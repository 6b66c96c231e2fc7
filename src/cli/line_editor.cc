#include "cli/line_editor.h"

#include <histedit.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

namespace tokamak::cli {
namespace {

constexpr int kHistoryLines = 1000;

char* Prompt(EditLine* editor) {
  void* prompt = nullptr;
  el_get(editor, EL_CLIENTDATA, &prompt);
  return static_cast<std::string*>(prompt)->data();
}

}  // namespace

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string history_file;
  std::string prompt;
};

LineEditor::LineEditor(const std::string& history_file) : impl_(std::make_unique<Impl>()) {
  impl_->history_file = history_file;
  impl_->editor = el_init("tokamak", stdin, stdout, stderr);
  impl_->history = history_init();
  HistEvent event;
  history(impl_->history, &event, H_SETSIZE, kHistoryLines);
  history(impl_->history, &event, H_SETUNIQUE, 1);
  if (!history_file.empty()) history(impl_->history, &event, H_LOAD, history_file.c_str());
  el_set(impl_->editor, EL_CLIENTDATA, &impl_->prompt);
  el_set(impl_->editor, EL_PROMPT, &Prompt);
  el_set(impl_->editor, EL_EDITOR, "emacs");
  el_set(impl_->editor, EL_HIST, history, impl_->history);
  el_set(impl_->editor, EL_SIGNAL, 0);  // Ctrl-C is ours
}

LineEditor::~LineEditor() {
  HistEvent event;
  if (!impl_->history_file.empty()) {
    history(impl_->history, &event, H_SAVE, impl_->history_file.c_str());
    ::chmod(impl_->history_file.c_str(), 0600);  // what people ask is theirs alone
  }
  history_end(impl_->history);
  el_end(impl_->editor);
}

LineEditor::Event LineEditor::Read(const std::string& prompt, std::string* line) {
  impl_->prompt = prompt;
  int count = 0;
  errno = 0;
  const char* text = el_gets(impl_->editor, &count);
  if (text == nullptr || count <= 0) {
    if (errno != EINTR) return Event::kEnd;
    el_reset(impl_->editor);
    return Event::kInterrupt;
  }
  line->assign(text, static_cast<size_t>(count));
  while (!line->empty() && (line->back() == '\n' || line->back() == '\r')) line->pop_back();
  HistEvent event;
  if (!line->empty()) history(impl_->history, &event, H_ENTER, line->c_str());
  return Event::kLine;
}

}  // namespace tokamak::cli
