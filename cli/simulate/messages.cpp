// A line is words and, at its end, free text in which line ends are escaped.
#include "simulate/messages.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tenon::simulate {
namespace {

constexpr std::size_t kLongest = std::size_t{1} << 20;
constexpr std::string_view kVerbs[] = {"run", "crash", "hang"};  // by Fate

[[noreturn]] void refuse(std::string_view line, const char* expected) {
  fail_run(
      fmt::format("a worker process and this program do not understand each other: expected {}, found '{}'",
                  expected, line.substr(0, 80)));
}

/// Removes the first word of `rest` and returns it.
std::string_view word(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(' '), rest.size());
  const std::string_view first = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return first;
}

bool number(std::string_view text, std::int64_t& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size() && value >= 0 && !text.empty();
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '\n') {
      out += c == '\n' ? "\\n" : "\\\\";
    } else {
      out += c;
    }
  }
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool pair = text[i] == '\\' && i + 1 < text.size();
    out += pair ? (text[i + 1] == 'n' ? '\n' : text[i + 1]) : text[i];
    if (pair) ++i;
  }
  return out;
}

bool is_digest(std::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

std::string order_line(const Order& order) {
  return fmt::format("{} {}\n", kVerbs[static_cast<std::size_t>(order.fate)], order.index);
}

std::string answer_line(const Answer& answer) {
  switch (answer.kind) {
    case Answer::Kind::kStep:
      return fmt::format("step {} {}\n", answer.done, answer.total);
    case Answer::Kind::kDone:
      return fmt::format("done {}\n", answer.digest);
    case Answer::Kind::kFailed:
      return fmt::format("failed {} {}\n", answer.failure, escaped(answer.text));
    default:
      return "ready\n";
  }
}

Order parse_order(std::string_view line) {
  std::string_view rest = line;
  const std::string_view verb = word(rest);
  Order order;
  const auto found = std::find(std::begin(kVerbs), std::end(kVerbs), verb);
  if (found == std::end(kVerbs) || !number(rest, order.index)) refuse(line, "run INDEX");
  order.fate = static_cast<Fate>(found - std::begin(kVerbs));
  return order;
}

Answer parse_answer(std::string_view line) {
  std::string_view rest = line;
  const std::string_view verb = word(rest);
  Answer answer;
  if (verb == "ready" && rest.empty()) return answer;
  if (verb == "step") {
    answer.kind = Answer::Kind::kStep;
    const std::string_view done = word(rest);
    if (!number(done, answer.done) || !number(rest, answer.total)) refuse(line, "step DONE TOTAL");
    return answer;
  }
  if (verb == "done") {
    answer.kind = Answer::Kind::kDone;
    if (!is_digest(rest)) refuse(line, "done DIGEST");
    answer.digest = rest;
    return answer;
  }
  if (verb == "failed") {
    answer.kind = Answer::Kind::kFailed;
    answer.failure = word(rest);
    if (answer.failure != "error" && answer.failure != "time" && answer.failure != "files")
      refuse(line, "failed error|time|files TEXT");
    answer.text = unescaped(rest);
    return answer;
  }
  refuse(line, "ready, step, done or failed");
}

void Lines::add(std::string_view bytes) {
  bytes_ += bytes;
  if (bytes_.size() > kLongest && bytes_.find('\n') == std::string::npos)
    fail_run(fmt::format("a worker process sent {} bytes without a line's end", bytes_.size()));
}

bool Lines::next(std::string& line) {
  const std::size_t end = bytes_.find('\n');
  if (end == std::string::npos) return false;
  line = bytes_.substr(0, end);
  bytes_.erase(0, end + 1);
  return true;
}

}  // namespace tenon::simulate
