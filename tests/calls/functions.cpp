// A small reader of declarations: it knows comments, class heads and braces.
#include "functions.hpp"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tenon::calls {
namespace {

std::string without_comments(const std::string& path) {
  std::ifstream in(path);
  std::string text, line;
  while (std::getline(in, line)) {
    const auto first = line.find_first_not_of(' ');
    if (first != std::string::npos && line[first] == '#') continue;
    if (line.find("static_assert") != std::string::npos) continue;
    text += line.substr(0, line.find("//")) + "\n";
  }
  return text;
}

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// The word that ends before `end`.
std::string word_before(const std::string& text, std::size_t end) {
  while (end > 0 && !in_word(text[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && in_word(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

class Reader {
 public:
  Reader(const std::string& text, Functions& found) : text_(text), found_(found) {}

  void read() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (in_word(c)) {
        take_word();
        continue;
      }
      if (c == ';') head_.clear();
      if (c == '{') scopes_.push_back(std::exchange(head_, ""));
      if (c == '}' && !scopes_.empty()) scopes_.pop_back();
      ++at_;
    }
  }

 private:
  void take_word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    const std::string word = text_.substr(begin, at_ - begin);
    if ((word == "class" || word == "struct") && word_before(text_, begin) != "enum") {
      const std::size_t name = text_.find_first_not_of(" \n", at_);
      std::size_t end = name;
      while (end < text_.size() && in_word(text_[end])) ++end;
      head_ = text_.substr(name, end - name);
    }
    if (word == "virtual" && !scopes_.empty() && !scopes_.back().empty()) take_function();
  }

  void take_function() {
    const std::size_t end = text_.find(';', at_), open = text_.find('(', at_);
    const std::string declaration = text_.substr(at_, end - at_);
    std::vector<Function>& functions = found_[scopes_.back()];
    Function function;
    function.place = functions.empty() ? 0 : functions.back().place + (functions.back().name == "~" ? 2 : 1);
    function.name = declaration.find('~') != std::string::npos ? "~" : word_before(text_, open);
    function.no_throw = function.name == "~" || declaration.find("noexcept") != std::string::npos;
    functions.push_back(function);
    at_ = end;
  }

  const std::string& text_;
  Functions& found_;
  std::size_t at_ = 0;
  std::string head_;
  std::vector<std::string> scopes_;  ///< names of classes; "" = none
};

}  // namespace

Functions read_functions(const std::string& folder) {
  Functions found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".hpp") continue;
    const std::string text = without_comments(entry.path());
    Reader(text, found).read();
  }
  return found;
}

}  // namespace tenon::calls
