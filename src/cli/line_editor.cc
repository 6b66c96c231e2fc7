#include "cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <iterator>
#include <string_view>

namespace tokamak::cli {
namespace {

constexpr int kHistoryLines = 1000;

// The state for the editor's callbacks.
struct Line {
  std::string prompt;
  const InterruptFlag* interrupt = nullptr;
  bool interrupted = false;
  bool marks_pastes = false;

  void MarkPastes(bool on) const {
    if (!marks_pastes) return;
    std::fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    std::fflush(stdout);
  }
};

Line& LineOf(EditLine* editor) {
  void* line = nullptr;
  el_get(editor, EL_CLIENTDATA, &line);
  return *static_cast<Line*>(line);
}

char* Prompt(EditLine* editor) { return LineOf(editor).prompt.data(); }

// Waits for a byte of stdin. Returns 1, 0 at the end of the input, or -1 with errno set (EINTR if
// the flag was raised). The editor's own read would miss a signal that arrives just before it.
int ReadByte(Line& line, char* byte) {
  for (;;) {
    std::array<pollfd, 2> fds = {{{STDIN_FILENO, POLLIN, 0}, {line.interrupt->fd(), POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (fds[1].revents != 0) {
      line.interrupted = true;
      errno = EINTR;
      return -1;
    }
    const ssize_t count = ::read(STDIN_FILENO, byte, 1);
    if (count >= 0) return static_cast<int>(count);
    if (errno != EINTR) return -1;
  }
}

// Reads a character for the editor; invalid UTF-8 becomes U+FFFD.
int ReadCharacter(EditLine* editor, wchar_t* character) {
  std::mbstate_t state = {};
  for (;;) {
    char byte = 0;
    const int count = ReadByte(LineOf(editor), &byte);
    if (count <= 0) return count;
    const size_t length = std::mbrtowc(character, &byte, 1, &state);
    if (length == static_cast<size_t>(-2)) continue;  // incomplete so far
    if (length == static_cast<size_t>(-1)) *character = 0xFFFD;
    return 1;
  }
}

unsigned char Insert(EditLine* editor, const std::wstring& text) {
  return el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

constexpr wchar_t kPasteEnd[] = L"\033[201~";

// The terminal marks pasted text, so a line end in it does not end the message.
unsigned char Paste(EditLine* editor, wint_t /*key*/) {
  std::wstring text;
  while (!text.ends_with(kPasteEnd)) {
    wchar_t character = 0;
    // The next read finds the same end or interrupt.
    if (el_wgetc(editor, &character) <= 0) return CC_NORM;
    text += character;
  }
  text.resize(text.size() - std::size(kPasteEnd) + 1);
  std::wstring clean;
  for (const wchar_t c : text) {
    if (c == L'\r') {
      clean += L'\n';
    } else if (c == L'\n' || c == L'\t' || (c >= L' ' && c != 0x7F)) {
      clean += c;
    }
  }
  while (clean.ends_with(L'\n')) clean.pop_back();  // only the user ends the message
  return Insert(editor, clean);
}

unsigned char NewLine(EditLine* editor, wint_t /*key*/) { return Insert(editor, L"\n"); }

// Takes over the terminal to edit a line. Ctrl-Z is then an ordinary key.
void TakeTerminal(EditLine* editor) {
  el_set(editor, EL_PREP_TERM, 1);
  // Set each time: PREP_TERM may restore the shell's control characters.
  el_wset(editor, EL_SETTY, L"-d", L"susp=", nullptr);
}

// Handles Ctrl-Z: restores the terminal, then stops the program as the terminal would.
unsigned char Stop(EditLine* editor, wint_t /*key*/) {
  LineOf(editor).MarkPastes(false);
  el_set(editor, EL_PREP_TERM, 0);
  ::kill(0, SIGTSTP);
  TakeTerminal(editor);
  LineOf(editor).MarkPastes(true);
  el_set(editor, EL_REFRESH);  // redraws below what the shell has written
  return CC_NORM;
}

void BindKeys(EditLine* editor) {
  el_wset(editor, EL_ADDFN, L"tokamak-paste", L"Insert what is pasted", &Paste);
  el_wset(editor, EL_ADDFN, L"tokamak-new-line", L"Begin another line", &NewLine);
  el_wset(editor, EL_ADDFN, L"tokamak-stop", L"Stop until the shell continues this", &Stop);
  el_wset(editor, EL_BIND, L"\033[200~", L"tokamak-paste", nullptr);
  el_wset(editor, EL_BIND, L"\033\r", L"tokamak-new-line", nullptr);
  el_wset(editor, EL_BIND, L"\033\n", L"tokamak-new-line", nullptr);
  el_wset(editor, EL_BIND, L"\032", L"tokamak-stop", nullptr);
}

// Whether the terminal can mark pasted text.
bool MarksPastes() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) != 0 && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

// The editor takes its encoding from the locale; without UTF-8 it would end at the first "é".
void UseUtf8() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
}

}  // namespace

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string history_file;
  Line line;
};

LineEditor::LineEditor(const std::string& history_file, const InterruptFlag& interrupt)
    : impl_(std::make_unique<Impl>()) {
  UseUtf8();
  impl_->line.interrupt = &interrupt;
  impl_->history_file = history_file;
  impl_->editor = el_init("tokamak", stdin, stdout, stderr);
  impl_->history = history_init();
  HistEvent event;
  history(impl_->history, &event, H_SETSIZE, kHistoryLines);
  history(impl_->history, &event, H_SETUNIQUE, 1);
  if (!history_file.empty()) history(impl_->history, &event, H_LOAD, history_file.c_str());
  el_set(impl_->editor, EL_CLIENTDATA, &impl_->line);
  el_set(impl_->editor, EL_PROMPT, &Prompt);
  el_set(impl_->editor, EL_EDITOR, "emacs");
  el_set(impl_->editor, EL_HIST, history, impl_->history);
  el_set(impl_->editor, EL_SIGNAL, 0);  // this program handles Ctrl-C
  el_set(impl_->editor, EL_GETCFN, &ReadCharacter);
  BindKeys(impl_->editor);
  impl_->line.marks_pastes = MarksPastes();
}

LineEditor::~LineEditor() {
  HistEvent event;
  if (!impl_->history_file.empty()) {
    history(impl_->history, &event, H_SAVE, impl_->history_file.c_str());
    ::chmod(impl_->history_file.c_str(), 0600);  // other users must not read the history
  }
  history_end(impl_->history);
  el_end(impl_->editor);
}

LineEditor::Event LineEditor::Read(const std::string& prompt, std::string* line) {
  if (impl_->line.interrupt->ending()) return Event::kEnd;
  impl_->line.prompt = prompt;
  impl_->line.interrupted = false;
  // Otherwise the editor would show the prompt first, and early input would appear twice.
  TakeTerminal(impl_->editor);
  el_resize(impl_->editor);  // the window may have been resized
  impl_->line.MarkPastes(true);
  int count = 0;
  const char* text = el_gets(impl_->editor, &count);
  impl_->line.MarkPastes(false);
  if (text == nullptr || count <= 0) {
    if (!impl_->line.interrupted || impl_->line.interrupt->ending()) return Event::kEnd;
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
