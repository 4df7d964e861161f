// Rule, reading and writing of ledger.hpp.
#include "ab/ledger.hpp"

#include "base/digests.hpp"
#include "base/process_facts.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <initializer_list>
#include <random>
#include <span>
#include <utility>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kLedgerFormat = "tenon.ab.ledger/1";
constexpr const char* kShares = "1/sqrt(t) - 1/sqrt(t+1)";
constexpr const char* kReshaping = "1/(x(x+1))";
constexpr std::string_view kLinkKey = ",\"link\":\"";
constexpr std::size_t kLinkDigits = 16;
constexpr double kRounding = 1e-9;  // of levels and e-values that are compared with their records

std::string link_of(const std::string& previous, std::string_view body) {
  Xxh3Stream digest;
  digest.update(std::as_bytes(std::span(previous)));
  digest.update(std::as_bytes(std::span(body)));
  return digest.hex().substr(0, kLinkDigits);
}

/// A line, taken apart. `link` is empty if there is none.
struct Linked {
  std::string body, link;
};

Linked taken_apart(std::string_view line) {
  const std::size_t tail = kLinkKey.size() + kLinkDigits + 2;
  if (line.size() < tail || !line.ends_with("\"}")) return {};
  const std::string_view end = line.substr(line.size() - tail);
  if (!end.starts_with(kLinkKey)) return {};
  return {std::string(line.substr(0, line.size() - tail)) + "}",
          std::string(end.substr(kLinkKey.size(), kLinkDigits))};
}

std::string dumped(const ordered_json& body) {
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json ranges_json(const std::vector<SeedRange>& ranges) {
  ordered_json out = ordered_json::array();
  for (const SeedRange& r : ranges) out.push_back({r.first, r.last});
  return out;
}

std::string header_body(const LedgerBook& book) {
  return dumped({{"format", kLedgerFormat},
                 {"rule", "e-LOND"},
                 {"alpha", book.alpha},
                 {"shares", kShares},
                 {"reshaping", kReshaping},
                 {"family", book.family},
                 {"created", book.created}});
}

std::string begin_body(const Question& q) {
  return dumped({{"begin", q.index},
                 {"id", q.id},
                 {"question", q.asked.question},
                 {"experiment", q.asked.experiment},
                 {"file", q.asked.file},
                 {"folder", q.asked.folder},
                 {"digest", q.asked.digest},
                 {"seeds", ranges_json(q.asked.seeds)},
                 {"tuning", ranges_json(q.asked.tuning)},
                 {"evidence", q.asked.sequential ? "e-value" : "p-value"},
                 {"rule", kLevelRules.name(q.rule)},
                 {"discoveries", q.discoveries},
                 {"alpha", q.level},
                 {"time", q.time}});
}

std::string verdict_body(const Question& q, const Answer& answer) {
  ordered_json arms = ordered_json::array();
  for (const ArmAnswer& a : answer.arms) {
    ordered_json arm{{"arm", a.arm}, {"verdict", a.outcome}};
    if (a.e) arm["e"] = *a.e;
    if (a.e_equivalent) arm["e_equivalent"] = *a.e_equivalent;
    if (a.p) arm["p"] = *a.p;
    arms.push_back(std::move(arm));
  }
  return dumped({{"verdict", q.index},
                 {"id", q.id},
                 {"arms", arms},
                 {"discovery", answer.discovery},
                 {"time", answer.time}});
}

// Readers of members; each throws std::runtime_error that says what it expected.
[[noreturn]] void unexpected(const std::string& what) {
  throw std::runtime_error(what);
}

const ordered_json& member(const ordered_json& j, const char* key) {
  const auto found = j.find(key);
  if (found == j.end()) unexpected(fmt::format("it has no '{}'", key));
  return *found;
}

std::string text_of(const ordered_json& j, const char* key) {
  const ordered_json& value = member(j, key);
  if (!value.is_string()) unexpected(fmt::format("'{}' is {}, expected a text", key, dumped(value)));
  return value.get<std::string>();
}

std::size_t count_of(const ordered_json& j, const char* key) {
  const ordered_json& value = member(j, key);
  if (!value.is_number_unsigned())
    unexpected(fmt::format("'{}' is {}, expected a count", key, dumped(value)));
  return value.get<std::size_t>();
}

double number_of(const ordered_json& j, const char* key) {
  const ordered_json& value = member(j, key);
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    unexpected(fmt::format("'{}' is {}, expected a number", key, dumped(value)));
  return value.get<double>();
}

bool truth_of(const ordered_json& j, const char* key) {
  const ordered_json& value = member(j, key);
  if (!value.is_boolean()) unexpected(fmt::format("'{}' is {}, expected true or false", key, dumped(value)));
  return value.get<bool>();
}

void expect_text(const ordered_json& j, const char* key, const std::string& expected) {
  if (const std::string found = text_of(j, key); found != expected)
    unexpected(fmt::format("'{}' is '{}', expected '{}'", key, found, expected));
}

void allow_only(const ordered_json& j, std::initializer_list<std::string_view> keys) {
  for (const auto& [key, value] : j.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      unexpected(fmt::format("it has '{}', which this program does not know", key));
  }
}

std::vector<SeedRange> ranges_in(const ordered_json& j, const char* key) {
  const ordered_json& value = member(j, key);
  std::vector<SeedRange> out;
  const auto whole = [](const ordered_json& n) {
    return n.is_number_unsigned() && n.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
  };
  bool good = value.is_array();
  for (std::size_t i = 0; good && i < value.size(); ++i) {
    const ordered_json& range = value[i];
    good = range.is_array() && range.size() == 2 && whole(range[0]) && whole(range[1]);
    if (!good) break;
    out.push_back({range[0].get<std::int64_t>(), range[1].get<std::int64_t>()});
    good = out.back().first <= out.back().last && (i == 0 || out[i - 1].last < out[i].first - 1);
  }
  if (!good) unexpected(fmt::format("'{}' is {}, expected ascending pairs of seeds", key, dumped(value)));
  return out;
}

bool overlap(const std::vector<SeedRange>& a, const std::vector<SeedRange>& b) {
  return std::any_of(a.begin(), a.end(), [&](const SeedRange& x) {
    return std::any_of(b.begin(), b.end(),
                       [&](const SeedRange& y) { return x.first <= y.last && y.first <= x.last; });
  });
}

/// Whether the evidence of an arm reaches its part of the question's level: 1 / alpha_t shared by the arms,
/// or a p-value that is adjusted for them.
bool carried(const Question& q, const ArmAnswer& arm, std::size_t arms) {
  if (q.asked.sequential) return arm.e && *arm.e * q.level >= static_cast<double>(arms) * (1 - kRounding);
  return arm.p && *arm.p <= q.level * (1 + kRounding);
}

/// Throws if an answer claims what the level of its question does not carry, or counts it wrongly.
void check_answer(const Question& q, const Answer& answer) {
  if (answer.arms.empty()) unexpected("it answers for no arm");
  bool discovery = false;
  for (const ArmAnswer& arm : answer.arms) {
    if (!claims_difference(arm)) continue;
    discovery = true;
    if (carried(q, arm, answer.arms.size())) continue;
    unexpected(fmt::format("arm '{}' is called {} with {}, which the level {} of question {} does not carry",
                           arm.arm, arm.outcome,
                           q.asked.sequential
                               ? fmt::format("e-value {}", arm.e ? fmt::format("{}", *arm.e) : "none")
                               : fmt::format("p-value {}", arm.p ? fmt::format("{}", *arm.p) : "none"),
                           q.level, q.index));
  }
  if (answer.discovery != discovery) {
    unexpected(fmt::format("'discovery' is {}, expected {}: a discovery is an arm that is better or worse",
                           answer.discovery, discovery));
  }
}

/// Takes lines into a book.
class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  /// Whether the text is a whole line by its link.
  bool whole(std::string_view line) const {
    const Linked parts = taken_apart(line);
    return !parts.link.empty() && parts.link == link_of(book_.link, parts.body);
  }

  void take(std::string_view line) {
    ++line_;
    try {
      const Linked parts = taken_apart(line);
      const ordered_json j = ordered_json::parse(parts.link.empty() ? std::string(line) : parts.body);
      if (!j.is_object()) unexpected("it is no JSON object");
      if (line_ == 1) check_version(j);
      if (parts.link.empty()) unexpected("it does not end in a link to the line before");
      if (const std::string link = link_of(book_.link, parts.body); link != parts.link) {
        unexpected(
            fmt::format("its link is {}, expected {}: this line was edited, or one before it is missing",
                        parts.link, link));
      }
      if (line_ == 1) {
        take_header(j);
      } else if (j.contains("begin")) {
        take_begin(j);
      } else if (j.contains("verdict")) {
        take_verdict(j);
      } else {
        unexpected("it is neither the begin of a question nor a verdict");
      }
      book_.link = parts.link;
    } catch (const std::exception& error) {  // of JSON, too
      refuse(error.what());
    }
  }

  /// The rest of the file, which no line end follows.
  void take_rest(std::string_view rest) {
    if (rest.empty()) return;
    if (whole(rest)) {
      take(rest);
      book_.unended = true;
      return;
    }
    if (!could_be_torn(rest)) {
      ++line_;
      refuse("it does not end, and does not begin as the next line would");
    }
    book_.unfinished = rest;
  }

  LedgerBook book() && { return std::move(book_); }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail_run(fmt::format(
        "{}:{}: no line of this ledger: {}. Every line counts for the levels of later questions, so "
        "none is skipped: put the file back as it was, or begin another family in another folder",
        where_, line_, why));
  }

  void check_version(const ordered_json& j) const {
    if (const std::string format = text_of(j, "format"); format != kLedgerFormat) {
      unexpected(
          fmt::format("the ledger has format '{}', and this program reads '{}'; use the program that "
                      "wrote it",
                      format, kLedgerFormat));
    }
  }

  void take_header(const ordered_json& j) {
    allow_only(j, {"format", "rule", "alpha", "shares", "reshaping", "family", "created"});
    expect_text(j, "rule", "e-LOND");
    expect_text(j, "shares", kShares);
    expect_text(j, "reshaping", kReshaping);
    book_.alpha = number_of(j, "alpha");
    if (!(book_.alpha > 0 && book_.alpha < 0.5))
      unexpected(fmt::format("'alpha' is {}, expected between 0 and 0.5", book_.alpha));
    book_.family = text_of(j, "family");
    book_.created = text_of(j, "created");
  }

  void take_begin(const ordered_json& j) {
    allow_only(j, {"begin", "id", "question", "experiment", "file", "folder", "digest", "seeds", "tuning",
                   "evidence", "rule", "discoveries", "alpha", "time"});
    Inquiry asked{.question = text_of(j, "question"),
                  .experiment = text_of(j, "experiment"),
                  .file = text_of(j, "file"),
                  .folder = text_of(j, "folder"),
                  .digest = text_of(j, "digest"),
                  .seeds = ranges_in(j, "seeds"),
                  .tuning = ranges_in(j, "tuning"),
                  .sequential = text_of(j, "evidence") == "e-value"};
    expect_text(j, "evidence", asked.sequential ? "e-value" : "p-value");
    Question q = book_.next(asked);
    if (const std::size_t index = count_of(j, "begin"); index != q.index)
      unexpected(fmt::format("it begins question {}, expected question {}", index, q.index));
    expect_text(j, "id", q.id);
    expect_text(j, "rule", std::string(kLevelRules.name(q.rule)));
    if (const std::size_t discoveries = count_of(j, "discoveries"); discoveries != q.discoveries) {
      unexpected(
          fmt::format("'discoveries' is {}, but the lines before it name {}", discoveries, q.discoveries));
    }
    const double level = number_of(j, "alpha");
    if (!(std::abs(level - q.level) <= kRounding * q.level))
      unexpected(fmt::format("'alpha' is {}, but the rule gives {}", level, q.level));
    q.level = level;
    q.time = text_of(j, "time");
    book_.questions.push_back(std::move(q));
    book_.events.emplace_back(book_.questions.back().index, false);
  }

  void take_verdict(const ordered_json& j) {
    allow_only(j, {"verdict", "id", "arms", "discovery", "time"});
    const std::size_t index = count_of(j, "verdict");
    if (index < 1 || index > book_.questions.size())
      unexpected(fmt::format("it answers question {}, which has not begun", index));
    Question& q = book_.questions[index - 1];
    if (q.answer) unexpected(fmt::format("question {} is answered already", index));
    expect_text(j, "id", q.id);
    Answer answer;
    const ordered_json& arms = member(j, "arms");
    if (!arms.is_array()) unexpected("'arms' is no array");
    for (const ordered_json& arm : arms) {
      if (!arm.is_object()) unexpected("an arm is no object");
      allow_only(arm, {"arm", "verdict", "e", "e_equivalent", "p"});
      ArmAnswer a{.arm = text_of(arm, "arm"), .outcome = text_of(arm, "verdict")};
      if (arm.contains("e")) a.e = number_of(arm, "e");
      if (arm.contains("e_equivalent")) a.e_equivalent = number_of(arm, "e_equivalent");
      if (arm.contains("p")) a.p = number_of(arm, "p");
      answer.arms.push_back(std::move(a));
    }
    answer.discovery = truth_of(j, "discovery");
    answer.time = text_of(j, "time");
    check_answer(q, answer);
    q.answer = std::move(answer);
    book_.events.emplace_back(index, true);
  }

  /// A line that a crash cut short begins as a line would; some file systems leave zeros.
  bool could_be_torn(std::string_view rest) const {
    while (!rest.empty() && rest.back() == '\0') rest.remove_suffix(1);
    std::vector<std::string> starts;
    if (line_ == 0) {
      starts = {R"({"format":"tenon.ab.ledger/)"};
    } else {
      starts = {fmt::format(R"({{"begin":{},)", book_.questions.size() + 1), R"({"verdict":)"};
    }
    return std::any_of(starts.begin(), starts.end(), [&](const std::string& start) {
      return rest.substr(0, start.size()) == std::string_view(start).substr(0, rest.size());
    });
  }

  std::string where_;
  std::size_t line_ = 0;
  LedgerBook book_;
};

std::string system_text(int code) {
  return std::generic_category().message(code);
}

[[noreturn]] void fail_system(const char* what, const std::string& path, int code) {
  fail_run(fmt::format("cannot {} {}: {}", what, path, system_text(code)));
}

/// "process 1234 (tenon ab a.toml)", as far as can be known.
std::string holder_text(int pid) {
  if (pid <= 0) return "another process";
  std::string command = base::read_file(fmt::format("/proc/{}/cmdline", pid)).value_or("");
  std::replace(command.begin(), command.end(), '\0', ' ');
  while (command.ends_with(' ')) command.pop_back();
  return command.empty() ? fmt::format("process {}", pid) : fmt::format("process {} ({})", pid, command);
}

/// Makes the folder and locks its ledger.
FileLock lock_ledger(const std::string& folder, double deadline_s) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_config(fmt::format("cannot make the folder {}: {}", folder, error.message()));
  const std::string path = (fs::path(folder) / "ledger.lock").string();
  return {path, std::chrono::milliseconds(std::llround(1000 * deadline_s)), [&](int holder) {
            return fmt::format(
                "{}: {} has held the ledger for {} s, and its lines take milliseconds; wait for it, or "
                "end it if it hangs",
                path, holder_text(holder), deadline_s);
          }};
}

void write_whole(int file, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(file, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_system("write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(done));
  }
}

void sync_folder(const std::string& folder) {
  const base::FileDescriptor entry(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!entry || ::fsync(entry.get()) != 0) fail_system("sync", folder, errno);
}

std::string random_digits() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

bool claims_difference(const ArmAnswer& arm) {
  return arm.outcome == "better" || arm.outcome == "worse";
}

double share_of(std::size_t index) {
  const double a = std::sqrt(static_cast<double>(index)), b = std::sqrt(static_cast<double>(index) + 1);
  return 1 / (a * b * (a + b));  // the difference of the inverses, without its cancellation
}

double reshaped(std::size_t r) {
  double sum = 0;
  for (std::size_t x = 1; x <= r; ++x) sum += 1 / (static_cast<double>(x) + 1);
  return sum;
}

double level_of(double alpha, std::size_t index, std::size_t discoveries, LevelRule rule) {
  const double factor =
      rule == LevelRule::kELond ? static_cast<double>(discoveries) + 1 : reshaped(discoveries + 1);
  return alpha * share_of(index) * factor;
}

std::vector<SeedRange> ranges_of(std::vector<std::int64_t> seeds) {
  std::sort(seeds.begin(), seeds.end());
  std::vector<SeedRange> out;
  for (const std::int64_t seed : seeds) {
    if (!out.empty() && seed - 1 <= out.back().last) {
      out.back().last = seed;
    } else {
      out.push_back({seed, seed});
    }
  }
  return out;
}

std::string ranges_text(const std::vector<SeedRange>& ranges) {
  std::vector<std::string> words;
  for (const SeedRange& r : ranges)
    words.push_back(r.first == r.last ? fmt::format("{}", r.first)
                                      : fmt::format("{} to {}", r.first, r.last));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::size_t LedgerBook::discoveries() const {
  return static_cast<std::size_t>(std::count_if(
      questions.begin(), questions.end(), [](const Question& q) { return q.answer && q.answer->discovery; }));
}

const Question* LedgerBook::find(const std::string& folder, const std::string& digest) const {
  for (auto q = questions.rbegin(); q != questions.rend(); ++q) {
    if (q->asked.folder == folder && q->asked.digest == digest) return &*q;
  }
  return nullptr;
}

const Question* LedgerBook::user_of(const std::vector<SeedRange>& seeds) const {
  for (const Question& q : questions) {
    if (overlap(seeds, q.asked.seeds) || overlap(seeds, q.asked.tuning)) return &q;
  }
  return nullptr;
}

Question LedgerBook::next(const Inquiry& asked) const {
  Question q;
  q.index = questions.size() + 1;
  q.asked = asked;
  q.id = fmt::format("{}-{}", q.index, asked.digest.substr(0, 8));
  q.rule = asked.sequential && user_of(asked.seeds) == nullptr ? LevelRule::kELond : LevelRule::kReshaped;
  q.discoveries = discoveries();
  q.level = level_of(alpha, q.index, q.discoveries, q.rule);
  return q;
}

LedgerBook parse_ledger(std::string_view text, const std::string& where) {
  Reader reader(where);
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    reader.take(text.substr(0, end));
  reader.take_rest(text);
  return std::move(reader).book();
}

std::string linked_line(const std::string& previous, std::string_view body) {
  std::string line(body.substr(0, body.size() - 1));
  return line + std::string(kLinkKey) + link_of(previous, body) + "\"}";
}

std::string ledger_text(const LedgerBook& book) {
  if (book.alpha == 0) return "";
  std::string out, link;
  const auto add = [&](const std::string& body) {
    const std::string line = linked_line(link, body);
    link = taken_apart(line).link;
    out += line + "\n";
  };
  add(header_body(book));
  for (const auto& [index, answered] : book.events) {
    const Question& q = book.questions[index - 1];
    add(answered ? verdict_body(q, *q.answer) : begin_body(q));
  }
  return out;
}

std::string Ledger::path_of(const std::string& folder) {
  return (fs::path(folder) / "ledger.jsonl").string();
}

Ledger::Ledger(const std::string& folder, double alpha, double deadline_s)
    : folder_(folder), lock_(lock_ledger(folder, deadline_s)) {
  const std::string path = path_of(folder_);
  file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) fail_system("open", path, errno);
  const std::string text = base::read_file(path).value_or("");
  book_ = parse_ledger(text, path);
  if (book_.unended) {
    write_whole(file_.get(), path, "\n");
    repaired_ = fmt::format("{}: the end of the last line was missing and is there again", path);
  } else if (!book_.unfinished.empty()) {
    const std::string torn = (fs::path(folder_) / "ledger.torn").string();
    const base::FileDescriptor kept(::open(torn.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!kept) fail_system("open", torn, errno);
    write_whole(kept.get(), torn, book_.unfinished + "\n");
    const auto whole = static_cast<off_t>(text.size() - book_.unfinished.size());
    if (::ftruncate(file_.get(), whole) != 0) fail_system("shorten", path, errno);
    repaired_ = fmt::format(
        "{}: a crash cut the last line as it was written, and the piece was moved to {}. Nothing is lost: no "
        "run begins before its question's line is whole, and a verdict is found again from its runs",
        path, torn);
    book_.unfinished.clear();
  }
  if (!repaired_.empty() && ::fsync(file_.get()) != 0) fail_system("sync", path, errno);
  if (book_.alpha == 0) {
    LedgerBook empty;
    empty.alpha = alpha;
    empty.family = random_digits();
    empty.created = utc_now();
    append(header_body(empty));
    sync_folder(folder_);
  }
  if (book_.alpha != alpha) {
    fail_config(fmt::format(
        "alpha is {}, and the family {} shares out {}; give the experiment alpha = {}, or ask it in "
        "another family",
        alpha, folder_, book_.alpha, book_.alpha));
  }
}

void Ledger::append(const std::string& body) {
  const std::string path = path_of(folder_);
  const auto before = static_cast<off_t>(fs::file_size(path));
  try {
    write_whole(file_.get(), path, linked_line(book_.link, body) + "\n");
    if (::fsync(file_.get()) != 0) fail_system("sync", path, errno);
  } catch (const Error&) {
    if (::ftruncate(file_.get(), before) != 0) {
    }  // what stays is an unfinished line
    throw;
  }
  book_ = parse_ledger(base::read_file(path).value_or(""), path);
}

const Question& Ledger::begin(const Inquiry& asked) {
  Question q = book_.next(asked);
  q.time = utc_now();
  append(begin_body(q));
  return book_.questions.back();
}

void Ledger::answer(std::size_t index, Answer answer) {
  if (index < 1 || index > book_.questions.size())
    fail_run(fmt::format("{}: question {} has not begun", path_of(folder_), index));
  const Question& q = book_.questions[index - 1];
  if (q.answer) {
    fail_run(fmt::format("{}: question {} was answered at {}; its first verdict counts", path_of(folder_),
                         index, q.answer->time));
  }
  answer.discovery = std::any_of(answer.arms.begin(), answer.arms.end(), claims_difference);
  answer.time = utc_now();
  try {
    check_answer(q, answer);
  } catch (const std::runtime_error& error) {
    fail_run(fmt::format("{}: no verdict is written: {}", path_of(folder_), error.what()));
  }
  append(verdict_body(q, answer));
}

LedgerBook read_ledger(const std::string& folder) {
  const std::string path = Ledger::path_of(folder);
  const std::optional<std::string> text = base::read_file(path);
  if (!text) fail_config(fmt::format("{} is no family: there is no {}", folder, path));
  return parse_ledger(*text, path);
}

}  // namespace tenon::ab
