// tenon generate: texts from a language model that was trained, for one prompt or for a file of them. First
// the words of a run (its tokenizer, or numbers), then the prompts, then rewards, then what is printed, then
// the command.
#include "command_line.hpp"
#include "trained_model.hpp"

#include "base/elapsed.hpp"
#include "base/json_writer.hpp"
#include "generate/stepwise_generator.hpp"
#include "plugin/guard.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/registry.hpp>
#include <tenon/reward.hpp>
#include <tenon/sdk/answer_text.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/sdk/prompts.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <numeric>
#include <optional>

namespace tenon::cli {
namespace {

constexpr std::int64_t kLargestPrompts = std::int64_t{1} << 30;
constexpr generate::SettingNames kSettingNames{"tenon generate", "--tokens",     "--temperature",
                                               "--top-k",        "--top-p",      "--think",
                                               "--think-grace",  "--think-close"};

/// The text of tokens: of the run's tokenizer, or ids as numbers where the data does not say what they mean.
class Words {
 public:
  explicit Words(train::NamedComponent<Dataset>& data) {
    if (auto* tokenized = static_cast<TokenizedText*>(data->query(TokenizedText::kId)))
      tokenizer_ = &data.guarded(*tokenized)->tokenizer();
    conversations_ = static_cast<ConversationText*>(data->query(ConversationText::kId));
    if (conversations_ != nullptr) {
      const std::span<const std::int32_t> end = data.guarded(*conversations_)->answer_end();
      answer_end_ = text(end);
    }
  }

  bool known() const { return tokenizer_ != nullptr; }
  /// Null where the data is no conversations.
  const ConversationText* conversations() const { return conversations_; }
  /// The text that ends an answer in training; "" = none.
  const std::string& answer_end() const { return answer_end_; }
  /// The token that ends a text; -1 = none.
  std::int32_t end_of_text() const { return known() ? tokenizer_->end_of_text() : -1; }
  /// `option` is named in messages.
  std::vector<std::int32_t> ids(const std::string& text, std::string_view option) const {
    return known() ? tokenizer_->encode(text) : parsed(text, option);
  }
  /// Text of a token that follows others.
  std::string piece(std::int32_t id) const {
    if (!known()) return fmt::format(" {}", id);
    return std::string(token_text(*tokenizer_, id));
  }
  std::string text(std::span<const std::int32_t> ids) const {
    std::string result;
    for (const std::int32_t id : ids) result += piece(id);
    return alone(std::move(result));
  }
  /// What follows a text, without it.
  std::string alone(std::string text) const {
    if (!known() && !text.empty()) text.erase(0, 1);
    return text;
  }
  /// `close`: text of the closing tag, or its ids.
  ThinkingBudget thinking(std::int64_t tokens, std::int64_t grace, const std::string& close) const {
    if (known()) return thinking_budget(*tokenizer_, tokens, grace, close, "tenon generate: --think-close");
    return {tokens, grace, parsed(close, "--think-close"), {}};
  }
  std::string joined(std::span<const std::int32_t> prompt, const std::string& answer) const {
    return text(prompt) + (known() || answer.empty() ? "" : " ") + answer;
  }

 private:
  static std::vector<std::int32_t> parsed(const std::string& text, std::string_view option);

  Tokenizer* tokenizer_ = nullptr;
  ConversationText* conversations_ = nullptr;
  std::string answer_end_;
};

std::vector<std::int32_t> Words::parsed(const std::string& text, std::string_view option) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0) {
      fail_config(
          fmt::format("tenon generate: this run was trained on token files, whose text is unknown; {} must "
                      "hold token ids such as \"15496 995\", found '{}'",
                      option, text));
    }
    ids.push_back(id);
    at = next;
  }
  return ids;
}

/// What `call` returns; an error of the component that it calls says at which prompt.
template <typename Call>
auto at_prompt(const std::string& place, Call&& call) {
  try {
    try {
      return call();
    } catch (...) {
      rethrow_noted_call();
    }
  } catch (const Error& error) {
    const std::string text = error.what();
    throw Error(error.kind(), text.find(place) != std::string::npos ? text : place + ": " + text);
  }
}

/// The words of a run, and its conversations, for lines of a file.
class LineEncoder final : public PromptEncoder {
 public:
  LineEncoder(const Words& words, train::NamedComponent<Dataset>& data) : words_(words), data_(data) {}

  std::vector<std::int32_t> encode(const std::string& text, const std::string& place) const override {
    return words_.ids(text, place);
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return words_.text(ids); }
  bool has_conversations() const override { return words_.conversations() != nullptr; }
  std::vector<std::int32_t> conversation(const Value& line, const std::string& place) const override {
    if (!has_conversations()) {
      fail_config(fmt::format(
          "{}: holds \"messages\", and the data of this run is no conversations: it does not offer {}; give "
          "{{\"prompt\": TEXT}}",
          place, ConversationText::kId));
    }
    return at_prompt(place, [&] { return data_.guarded(*words_.conversations())->prompt(line); });
  }

 private:
  const Words& words_;
  train::NamedComponent<Dataset>& data_;
};

std::vector<PromptLine> prompts_of_file(const PromptEncoder& encoder, FileSystem& files,
                                        const std::string& path) {
  const std::string all = read_text(files, path, kLargestPrompts);
  std::vector<PromptLine> prompts = read_prompts(all, path, PromptForm::kEither, encoder);
  if (prompts.empty()) fail_config(fmt::format("tenon generate: --prompts: {} holds no prompt", path));
  return prompts;
}

void check_prompts(std::span<const PromptLine> prompts, std::int64_t vocabulary) {
  for (const PromptLine& prompt : prompts) {
    if (prompt.ids.empty()) {
      fail_config(
          fmt::format("tenon generate: {} is empty; the model needs a token to go on from", prompt.place));
    }
    for (const std::int32_t id : prompt.ids) {
      if (id >= vocabulary) {
        fail_config(fmt::format("tenon generate: {} holds token {}, and the model knows 0 to {}",
                                prompt.place, id, vocabulary - 1));
      }
    }
  }
}

/// One answer and what is said of it.
struct Answer {
  std::string text;
  Generated generated;
  std::vector<std::pair<std::string, double>> parts;  ///< of its reward

  double log_prob() const {
    return std::accumulate(generated.log_probs.begin(), generated.log_probs.end(), 0.0);
  }
  double reward() const {
    double sum = 0;
    for (const auto& [name, value] : parts) sum += value;
    return sum;
  }
  const char* end() const {
    constexpr const char* kNames[] = {"tokens", "stop", "stop", "context"};
    return kNames[static_cast<std::size_t>(generated.end)];
  }
};

class PartList final : public RewardParts {
 public:
  explicit PartList(std::vector<std::pair<std::string, double>>& parts) : parts_(parts) {}
  void add(std::string_view name, double value) override { parts_.emplace_back(name, value); }

 private:
  std::vector<std::pair<std::string, double>>& parts_;
};

/// The component that --reward names, with its options at their defaults or as --reward-set says.
class Scorer {
 public:
  Scorer(TrainedRun& run, const std::string& type, const std::vector<std::string>& sets) : type_(type) {
    const Config config = Config::parse("", "--reward-set", sets);
    options_ = resolve_options(component_request(config.root(), run.registry().describe(Reward::kKind, type),
                                                 &run.registry()))
                   .options;
    run.registry().create_inner(*options_, run.host());
    reward_ = run.registry().create<Reward>(type, *options_, run.host());
  }

  void score(const PromptLine& prompt, Answer& answer) {
    PartList parts(answer.parts);
    const RewardSample sample{prompt.text, answer.text, prompt.sample ? &*prompt.sample : nullptr};
    at_prompt(prompt.place, [&] { reward_->score(sample, parts); });
    for (const auto& [name, value] : answer.parts) {
      if (!std::isfinite(value)) {
        fail_run(fmt::format("{}: part '{}' of the reward '{}' is {}, expected a finite number", prompt.place,
                             name, type_, value));
      }
    }
  }

 private:
  std::string type_;
  std::unique_ptr<ResolvedOptions> options_;
  train::NamedComponent<Reward> reward_;
};

/// Means over all answers: "reward", then each part, in the order of the first answer.
std::vector<std::pair<std::string, double>> mean_rewards(std::span<const Answer> answers) {
  std::vector<std::pair<std::string, double>> means{{"reward", 0}};
  for (const Answer& answer : answers) {
    means[0].second += answer.reward();
    for (const auto& [name, value] : answer.parts) {
      const std::string key = "reward/" + name;
      auto found = std::ranges::find(means, key, [](const auto& mean) { return mean.first; });
      if (found == means.end()) found = means.insert(means.end(), {key, 0});
      found->second += value;
    }
  }
  for (auto& [name, value] : means) value /= static_cast<double>(answers.size());
  return means;
}

/// A line of JSONL.
std::string json_line(const PromptLine& prompt, const Answer& answer) {
  std::string out = fmt::format("{{\"line\": {}, \"prompt\": ", prompt.line);
  append_json_text(out, prompt.text);
  out += ", \"text\": ";
  append_json_text(out, answer.text);
  out += fmt::format(", \"tokens\": {}, \"ids\": [{}], \"log_prob\": ", answer.generated.ids.size(),
                     fmt::join(answer.generated.ids, ", "));
  append_json_number(out, answer.log_prob());
  out += fmt::format(", \"end\": \"{}\"", answer.end());
  if (!answer.parts.empty()) {
    out += ", \"reward\": ";
    append_json_number(out, answer.reward());
    out += ", \"parts\": {";
    for (const auto& [name, value] : answer.parts) {
      if (&name != &answer.parts.front().first) out += ", ";
      append_json_text(out, name);
      out += ": ";
      append_json_number(out, value);
    }
    out += "}";
  }
  return out + "}\n";
}

struct Request {
  std::string run;
  std::optional<std::string> prompt, prompts, out, reward;
  std::optional<std::int64_t> step, think;
  std::int64_t think_grace = 0;
  std::string think_close;
  std::vector<std::string> sets, stops, reward_sets;
  std::int64_t batch = 0;
  bool json = false;
  GenerationSpec spec;
};

template <typename T>
std::optional<T> value_of(const po::variables_map& values, const char* name) {
  return values.count(name) > 0 ? std::optional(values[name].as<T>()) : std::nullopt;
}

Request request_of(const po::variables_map& values) {
  using List = std::vector<std::string>;
  Request request;
  request.prompt = value_of<std::string>(values, "prompt");
  request.prompts = value_of<std::string>(values, "prompts");
  if (values.count("run") == 0 || (!request.prompt && !request.prompts))
    fail_config("tenon generate: usage: tenon generate RUN --prompt TEXT [options]");
  if (request.prompt && request.prompts) fail_config("tenon generate: give --prompt or --prompts, not both");
  request.run = values["run"].as<List>()[0];
  request.out = value_of<std::string>(values, "out");
  request.reward = value_of<std::string>(values, "reward");
  request.step = value_of<std::int64_t>(values, "step");
  request.sets = value_of<List>(values, "set").value_or(List());
  request.stops = value_of<List>(values, "stop").value_or(List());
  request.reward_sets = value_of<List>(values, "reward-set").value_or(List());
  if (!request.reward && !request.reward_sets.empty())
    fail_config("tenon generate: --reward-set is about --reward, which is not given");
  if (std::ranges::find(request.stops, "") != request.stops.end())
    fail_config("tenon generate: --stop is empty, expected a text");
  request.think = value_of<std::int64_t>(values, "think");
  request.think_grace = values["think-grace"].as<std::int64_t>();
  request.think_close = values["think-close"].as<std::string>();
  if (!request.think && (!values["think-grace"].defaulted() || !values["think-close"].defaulted()))
    fail_config("tenon generate: --think-grace and --think-close are about --think, which is not given");
  for (const auto& [option, value] :
       {std::pair{"--think", request.think.value_or(0)}, std::pair{"--think-grace", request.think_grace}}) {
    if (value < 0) fail_config(fmt::format("tenon generate: {} is {}, expected 0 or more", option, value));
  }
  request.batch = values["batch"].as<std::int64_t>();
  if (request.batch < 1)
    fail_config(fmt::format("tenon generate: --batch is {}, expected 1 or more", request.batch));
  request.json = values.count("json") > 0;
  request.spec = {.most = values["tokens"].as<std::int64_t>(),
                  .temperature = values["temperature"].as<double>(),
                  .top_k = values["top-k"].as<std::int64_t>(),
                  .top_p = values["top-p"].as<double>(),
                  .seed = values["seed"].as<std::uint64_t>(),
                  .slides = true};
  generate::check_settings(request.spec, kSettingNames);
  return request;
}

/// Draws all answers. A single text is printed as it grows unless it is printed as JSON.
class Texts {
 public:
  Texts(const Request& request, const Words& words, std::span<const PromptLine> prompts)
      : request_(request),
        words_(words),
        prompts_(prompts),
        streams_(request.prompt && !request.json && !request.out),
        terminal_(::isatty(STDERR_FILENO) == 1) {
    std::vector<std::string> stops = request.stops;
    if (!words.answer_end().empty()) stops.push_back(words.answer_end());
    if (!stops.empty() && !words.known()) {
      fail_config(
          "tenon generate: --stop is a text, and this run was trained on token files, whose text is unknown");
    }
    texts_.assign(prompts.size(), AnswerText(stops));
    spec_ = request.spec;
    if (words.end_of_text() >= 0) spec_.stop_ids = {words.end_of_text()};
    if (request.think)
      spec_.thinking = words.thinking(*request.think, request.think_grace, request.think_close);
    generate::check_settings(spec_, kSettingNames);
  }

  std::vector<Answer> draw(Generator& generator) {
    std::vector<Prompt> prompts;
    for (std::size_t i = 0; i < prompts_.size(); ++i) prompts.push_back({prompts_[i].ids, i});
    if (streams_) std::cout << words_.text(prompts_[0].ids) << std::flush;
    begin_ = said_ = base::Steady::now();
    std::vector<Generated> drawn = generator.generate(
        prompts, spec_, [&](std::size_t index, std::int32_t token, double) { return hear(index, token); });
    if (streams_) std::cout << texts_[0].take(true) << "\n";
    std::vector<Answer> answers(drawn.size());
    for (std::size_t i = 0; i < drawn.size(); ++i)
      answers[i] = {words_.alone(texts_[i].text()), std::move(drawn[i]), {}};
    if (request_.prompts) say(true);
    return answers;
  }

 private:
  bool hear(std::size_t index, std::int32_t token) {
    ++tokens_;
    bool goes_on = true;
    if (token != words_.end_of_text()) goes_on = texts_[index].add(words_.piece(token));
    if (streams_) std::cout << texts_[index].take(false) << std::flush;
    if (request_.prompts && terminal_ && base::seconds_since(said_) > 0.5) say(false);
    return goes_on;
  }

  void say(bool finished) {
    said_ = base::Steady::now();
    const double time = base::seconds_since(begin_);
    print_progress(
        terminal_,
        fmt::format("tenon generate: {} prompt{}, {} tokens in {:.1f} s, {:.0f} tokens/s", prompts_.size(),
                    prompts_.size() == 1 ? "" : "s", tokens_, time, static_cast<double>(tokens_) / time),
        finished);
  }

  const Request& request_;
  const Words& words_;
  std::span<const PromptLine> prompts_;
  GenerationSpec spec_;
  bool streams_, terminal_;
  std::vector<AnswerText> texts_;
  std::int64_t tokens_ = 0;
  base::Steady::time_point begin_, said_;
};

std::string json_of_one(const Request& request, const std::string& folder, std::int64_t step,
                        const Words& words, const PromptLine& prompt, const Answer& answer) {
  std::vector<std::int32_t> ids = prompt.ids;
  ids.insert(ids.end(), answer.generated.ids.begin(), answer.generated.ids.end());
  JsonWriter out;
  out.begin_object();
  out.member("run", folder);
  out.member("step", step);
  out.member("prompt", prompt.text);
  out.member("prompt_tokens", static_cast<std::int64_t>(prompt.ids.size()));
  out.member("tokens", static_cast<std::int64_t>(answer.generated.ids.size()));
  out.member("temperature", request.spec.temperature);
  out.member("top_k", request.spec.top_k);
  out.member("top_p", request.spec.top_p);
  out.member("seed", request.spec.seed);
  if (request.think) {
    out.member("think", *request.think);
    out.member("think_grace", request.think_grace);
    out.member("think_inserted", answer.generated.inserted);
  }
  out.member("text", words.joined(prompt.ids, answer.text));
  out.member("ids", fmt::format("{}", fmt::join(ids, " ")));
  out.member("log_prob", answer.log_prob());
  out.member("end", answer.end());
  for (const auto& [name, value] : mean_rewards({&answer, 1})) {
    if (!answer.parts.empty()) out.member(name, value);
  }
  out.end_object();
  return out.take();
}

void print_all(const Request& request, FileSystem& files, const Words& words,
               std::span<const PromptLine> prompts, std::span<const Answer> answers) {
  std::string lines, page;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (request.json || request.out) {
      lines += json_line(prompts[i], answers[i]);
    } else if (request.prompts) {
      page += fmt::format("--- {}\n{}\n", prompts[i].line, words.joined(prompts[i].ids, answers[i].text));
    }
  }
  if (request.out) files.write_text_atomically(*request.out, lines);
  if (request.json) page = std::move(lines);
  std::cout << page;
  if (!request.reward) return;
  std::ostream& means = request.json ? std::cerr : std::cout;
  for (const auto& [name, value] : mean_rewards(answers)) means << fmt::format("{} {:.6g}\n", name, value);
}

void declare_generate(po::options_description& options) {
  options.add_options()("prompt", po::value<std::string>(),
                        "TEXT  what to go on from (token ids where the data is a token file)");
  options.add_options()("prompts", po::value<std::string>(),
                        "FILE  a prompt per line: texts, or JSON with \"prompt\" or \"messages\"");
  options.add_options()("batch", po::value<std::int64_t>()->default_value(16),
                        "N  texts that are drawn together, default 16; changes none of them");
  options.add_options()("tokens", po::value<std::int64_t>()->default_value(128),
                        "N  tokens to add at most, default 128");
  options.add_options()("stop", po::value<std::vector<std::string>>()->composing(),
                        "TEXT  ends an answer before this text; may be repeated");
  options.add_options()("think", po::value<std::int64_t>(),
                        "N  after N tokens the closing tag is inserted at the next end of a line");
  options.add_options()("think-grace", po::value<std::int64_t>()->default_value(500),
                        "M  and at most M tokens later, default 500");
  options.add_options()("think-close", po::value<std::string>()->default_value("</think>"),
                        "TEXT  the closing tag, default </think>");
  options.add_options()("temperature", po::value<double>()->default_value(1),
                        "T  divides the logits, default 1; 0: the likeliest token always");
  options.add_options()("top-k", po::value<std::int64_t>()->default_value(0),
                        "K  choose among the K likeliest tokens; 0: all");
  options.add_options()("top-p", po::value<double>()->default_value(1),
                        "P  and among the fewest likeliest that together have probability P; 1: all");
  options.add_options()("seed", po::value<std::uint64_t>()->default_value(1), "S  of the draws, default 1");
  options.add_options()("step", po::value<std::int64_t>(),
                        "N  checkpoint of slot N instead of the newest valid one");
  options.add_options()("set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  over the run's configuration: another device, other kernels");
  options.add_options()("reward", po::value<std::string>(),
                        "TYPE  scores the answers, and prints the mean of every part");
  options.add_options()("reward-set", po::value<std::vector<std::string>>()->composing(),
                        "K=V  an option of the reward");
  options.add_options()("out", po::value<std::string>(),
                        "FILE  writes prompts and answers, a JSON object per line");
  options.add_options()("json", "print JSON: of --prompt an object, of --prompts one per line");
}

int draw_texts(const Request& request, TrainedRun& run) {
  const auto stored = run.open(request.step);
  TrainedModel trained(run, *stored);
  const DataInfo data = generate::StepwiseGenerator::prompt_data(trained.data()->info());
  LanguageGraph graph = trained.language_graph("tenon generate", data);
  const Words words(trained.data());
  std::vector<PromptLine> prompts;
  if (request.prompt) {
    prompts = {{"--prompt", 1, *request.prompt, words.ids(*request.prompt, "--prompt"), std::nullopt}};
  } else {
    prompts = prompts_of_file(LineEncoder(words, trained.data()), run.files(), *request.prompts);
  }
  std::optional<Scorer> scorer;
  if (request.reward) scorer.emplace(run, *request.reward, request.reward_sets);
  Texts texts(request, words, prompts);

  generate::GeneratorSettings settings;
  settings.batch = std::min(request.batch, static_cast<std::int64_t>(prompts.size()));
  settings.made = [&](Executor& executor) { trained.restore_sites(executor, 0); };
  generate::StepwiseGenerator generator(trained.spec(), std::move(graph), data, settings);
  check_prompts(prompts, generator.vocabulary());
  const auto weights =
      make_parameter_set("live", generator.parameters(), trained.device(), SetContents::kEverything);
  trained.load(*weights, 0);
  generator.bind(*weights, trained.slot());

  std::vector<Answer> answers = texts.draw(generator);
  if (scorer) {
    for (std::size_t i = 0; i < answers.size(); ++i) scorer->score(prompts[i], answers[i]);
  }
  if (request.json && request.prompt && !request.out) {
    std::cout << json_of_one(request, run.folder(), stored->step(), words, prompts[0], answers[0]);
  } else {
    print_all(request, run.files(), words, prompts, answers);
  }
  return 0;
}

int run_generate(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kGenerate, {"run"}, arguments);
  if (parsed.helped) return 0;
  const Request request = request_of(parsed.values);
  TrainedRun run("generate", request.run, request.sets);
  try {
    return draw_texts(request, run);
  } catch (...) {
    rethrow_noted_call();  // while the run lives, whose registry has the names
  }
}

}  // namespace

const Command kGenerate{"generate", "RUN --prompt TEXT [options]",
                        "Sample text from a language model that was trained.", run_generate,
                        declare_generate};

}  // namespace tenon::cli
