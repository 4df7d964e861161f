// tenon generate on whole runs: its output, which a seed determines, files of prompts, and refusals.
#include "run_program.hpp"

#include <algorithm>

namespace tenon::integration::generate_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Generate : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(scratch_.train({"--set", "run.steps=500", "--set", "recovery.every=500"}).status, 0);
  }
  Ended generate(std::vector<std::string> more) const {
    more.insert(more.begin(), {"generate", "runs/tiny", "--prompt", "line 4"});
    const Ended ended = scratch_.run(std::move(more));
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended;
  }
  Scratch scratch_;
};

TEST_F(Generate, IsDecidedByItsSeed) {
  const std::string first = generate({"--tokens", "40", "--seed", "7"}).out;
  EXPECT_THAT(first, StartsWith("line 4"));
  EXPECT_EQ(generate({"--tokens", "40", "--seed", "7"}).out, first);
  EXPECT_NE(generate({"--tokens", "40", "--seed", "8"}).out, first);
  // 6 bytes of prompt, 40 more, of which none is truncated, and the final newline.
  EXPECT_EQ(first.size(), 47u);
}

TEST_F(Generate, BeginsTheSameWhenAskedForMore) {
  const std::string longer = generate({"--tokens", "30"}).out, shorter = generate({"--tokens", "10"}).out;
  EXPECT_EQ(longer.substr(0, 16), shorter.substr(0, 16));
}

// The text is a list of lines "line <n> of the text": any trained model writes such ends and beginnings. A
// model this small may stammer in between, on one kernel set and not on another.
TEST_F(Generate, WritesTheLikeliestTextAtTemperatureZero) {
  const std::string text = generate({"--tokens", "60", "--temperature", "0"}).out;
  EXPECT_THAT(text, HasSubstr(" text\nline "));
  EXPECT_EQ(generate({"--tokens", "60", "--temperature", "0", "--seed", "9"}).out, text);
  EXPECT_EQ(generate({"--tokens", "60", "--top-k", "1", "--seed", "9"}).out, text);
}

TEST_F(Generate, PrintsJson) {
  const std::string json = generate({"--tokens", "3", "--temperature", "0", "--json"}).out;
  for (const char* part : {"\"step\": 500", "\"prompt\": \"line 4\"", "\"prompt_tokens\": 6", "\"tokens\": 3",
                           "\"text\": \"line 4", "\"ids\": \"108 105 110 101 32 52 "}) {
    EXPECT_THAT(json, HasSubstr(part));
  }
}

// The context is 16 bytes: all texts of 40 slide. Fast and reference kernels alike.
TEST_F(Generate, ATextIsTheSameAloneAndInBatchesOfAFile) {
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += "line " + std::to_string(i * i) + (i % 3 == 0 ? " of the" : "") + "\n";
  write_file(scratch_ / "prompts.txt", lines);
  for (const char* kernels : {"auto", "reference"}) {
    const auto draw = [&](const char* batch) {
      const Ended ended =
          scratch_.run({"generate", "runs/tiny", "--prompts", "prompts.txt", "--tokens", "40", "--seed", "3",
                        "--batch", batch, "--set", std::string("device.kernels=") + kernels, "--json"});
      EXPECT_EQ(ended.status, 0) << ended.err;
      EXPECT_THAT(ended.err, HasSubstr("tenon generate: 20 prompts, 800 tokens in "));
      return ended.out;
    };
    const std::string all = draw("16");
    EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 20);
    const auto texts =
        [](std::string json) {  // without probabilities, whose last digits fast kernels may change
          std::string kept;
          while (!json.empty()) {
            const std::string line = json.substr(0, json.find('\n'));
            kept += line.substr(0, line.find(", \"log_prob\"")) + "\n";
            json.erase(0, line.size() + 1);
          }
          return kept;
        };
    EXPECT_EQ(texts(draw("1")), texts(all)) << kernels;
    EXPECT_EQ(texts(draw("7")), texts(all)) << kernels;
    // Number 0 is the first prompt of a file, and the one prompt of --prompt.
    const Ended alone =
        scratch_.run({"generate", "runs/tiny", "--prompt", "line 0 of the", "--tokens", "40", "--seed", "3",
                      "--set", std::string("device.kernels=") + kernels, "--out", "one.jsonl"});
    EXPECT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(texts(read_file(scratch_ / "one.jsonl")), texts(all).substr(0, texts(all).find('\n') + 1));
  }
}

TEST_F(Generate, ReadsPromptsFromJsonAndPrintsTexts) {
  write_file(scratch_ / "prompts.jsonl", "{\"prompt\": \"line 4\", \"answer\": 4}\n\n{\"prompt\": \"of\"}\n");
  const Ended ended = scratch_.run(
      {"generate", "runs/tiny", "--prompts", "prompts.jsonl", "--tokens", "12", "--temperature", "0"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  const std::string first = generate({"--tokens", "12", "--temperature", "0"}).out;
  EXPECT_THAT(ended.out, StartsWith("--- 1\n" + first + "--- 3\nof"));
}

TEST_F(Generate, EndsBeforeAStopText) {
  const std::string free = generate({"--tokens", "60", "--temperature", "0"}).out;
  const std::size_t end = free.find(" text", 6);
  ASSERT_NE(end, std::string::npos);
  const std::string stopped =
      generate({"--tokens", "60", "--temperature", "0", "--stop", "never", "--stop", " text"}).out;
  EXPECT_EQ(stopped, free.substr(0, end) + "\n");
  const std::string json =
      generate({"--tokens", "60", "--temperature", "0", "--stop", " text", "--json"}).out;
  EXPECT_THAT(json, HasSubstr("\"end\": \"stop\""));
  EXPECT_THAT(json, HasSubstr("\"tokens\": " + std::to_string(end - 6 + 5) + ","))
      << "bytes of the stop were drawn";
}

// Texts at temperature 0 are lines, so a budget is spent within one, and its tag is where that ends.
TEST_F(Generate, InsertsAClosingTagWhenTheBudgetIsSpent) {
  const auto answer = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--tokens", "60", "--temperature", "0"});
    return generate(std::move(more)).out.substr(6);
  };
  const std::string free = answer({});
  const std::size_t line = free.find('\n', 5) + 1;
  ASSERT_LT(line, 40u);
  const std::string closed = answer({"--think", "5"});
  EXPECT_EQ(closed.substr(0, line + 8), free.substr(0, line) + "</think>") << "at the end of the line";
  EXPECT_EQ(closed.size(), 61u) << "tokens of the tag count";
  const std::string early = answer({"--think", "5", "--think-grace", "2", "--think-close", "##"});
  EXPECT_EQ(early.substr(0, 9), free.substr(0, 7) + "##") << "two tokens later at the latest";
  EXPECT_EQ(answer({"--think", "0", "--think-grace", "0", "--think-close", "#"}).substr(0, 1), "#");
  EXPECT_EQ(answer({"--think", "60", "--think-grace", "0"}), free) << "the end comes first";
  const std::string tag = free.substr(2, 3);
  EXPECT_EQ(answer({"--think", "6", "--think-grace", "0", "--think-close", tag}), free)
      << "a text that holds the tag is left alone";
  const std::string stopped =
      answer({"--think", "5", "--think-grace", "2", "--think-close", "#/", "--stop", "/"});
  EXPECT_EQ(stopped, free.substr(0, 7) + "#\n") << "a stop text may lie in the tag";
  const std::string json =
      generate({"--tokens", "60", "--think", "5", "--think-grace", "2", "--think-close", "##", "--json"}).out;
  for (const char* part : {"\"think\": 5", "\"think_grace\": 2", "\"think_inserted\": 2", "\"tokens\": 60"})
    EXPECT_THAT(json, HasSubstr(part));
}

TEST_F(Generate, RefusesWhatItCannotDo) {
  const struct {
    std::vector<std::string> words;
    const char* says;
  } cases[] = {
      {{"generate", "runs/tiny"},
       "tenon: tenon generate: usage: tenon generate RUN --prompt TEXT [options]\n"},
      {{"generate", "runs/tiny", "--prompt", ""},
       "tenon: tenon generate: --prompt is empty; the model needs a token to go on from\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--temperature", "-1"},
       "tenon: tenon generate: --temperature is -1, expected 0 or more\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--top-k", "-1"},
       "tenon: tenon generate: --top-k is -1, expected 0 (all tokens) or more\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--tokens", "-1"},
       "tenon: tenon generate: --tokens is -1, expected 0 or more\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--top-p", "0"},
       "tenon: tenon generate: --top-p is 0, expected more than 0 and at most 1 (all tokens)\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--prompts", "b"},
       "tenon: tenon generate: give --prompt or --prompts, not both\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--stop", ""},
       "tenon: tenon generate: --stop is empty, expected a text\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--batch", "0"},
       "tenon: tenon generate: --batch is 0, expected 1 or more\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--reward-set", "a=1"},
       "tenon: tenon generate: --reward-set is about --reward, which is not given\n"},
      {{"generate", "runs/tiny", "--prompts", "blank.txt"},
       "tenon: tenon generate: --prompts: blank.txt holds no prompt\n"},
      {{"generate", "runs/tiny", "--prompts", "broken.jsonl"},
       "tenon: broken.jsonl:2: expected an object with a text \"prompt\", or with \"messages\"\n"},
      {{"generate", "runs/tiny", "--prompts", "number.jsonl"},
       "tenon: number.jsonl:1: expected an object with a text \"prompt\", or with \"messages\"\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--think", "-1"},
       "tenon: tenon generate: --think is -1, expected 0 or more\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--think", "1", "--think-grace", "-2"},
       "tenon: tenon generate: --think-grace is -2, expected 0 or more\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--think-close", "."},
       "tenon: tenon generate: --think-grace and --think-close are about --think, which is not given\n"},
      {{"generate", "runs/tiny", "--prompt", "a", "--think", "1", "--think-close", ""},
       "tenon: tenon generate: --think-close: the closing tag of the thinking budget is empty, expected a "
       "text\n"},
      {{"generate", "runs/tiny", "--prompts", "talk.jsonl"},
       "tenon: talk.jsonl:1: holds \"messages\", and the data of this run is no conversations: it does not "
       "offer "
       "tenon.dataset.conversations/1; give {\"prompt\": TEXT}\n"},
  };
  write_file(scratch_ / "blank.txt", " \n\n");
  write_file(scratch_ / "broken.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
  write_file(scratch_ / "talk.jsonl", "{\"messages\": []}\n");
  write_file(scratch_ / "number.jsonl", "{\"prompt\": 4}\n");
  for (const auto& c : cases) {
    const Ended ended = scratch_.run(c.words);
    EXPECT_EQ(ended.status, 2) << c.says;
    EXPECT_EQ(ended.err, c.says);
  }
}

TEST(GenerateFromTokenFiles, TakesAndPrintsIds) {
  const Scratch scratch;
  std::string tokens;  // nanoGPT's headerless uint16: 0 1 2 ... 9 0 1 2 ...
  for (int i = 0; i < 1500; ++i) tokens += std::string{static_cast<char>(i % 10), '\0'};
  write_file(scratch / "tokens.bin", tokens);
  write_file(scratch / "run.toml", replaced(Scratch::kRun, "path = \"text.txt\"",
                                            "path = \"tokens.bin\"\nformat = \"nanogpt\"\nvocabulary = 10"));
  ASSERT_EQ(scratch.train({"--set", "run.steps=100", "--set", "recovery.every=100"}).status, 0);
  const Ended ended =
      scratch.run({"generate", "runs/tiny", "--prompt", "3, 4 5", "--tokens", "8", "--temperature", "0"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out, "3 4 5 6 7 8 9 0 1 2 3\n");
  const Ended words = scratch.run({"generate", "runs/tiny", "--prompt", "three"});
  EXPECT_EQ(words.status, 2);
  EXPECT_EQ(
      words.err,
      "tenon: tenon generate: this run was trained on token files, whose text is unknown; --prompt must hold "
      "token ids such as \"15496 995\", found 'three'\n");
  const Ended unknown = scratch.run({"generate", "runs/tiny", "--prompt", "10"});
  EXPECT_EQ(unknown.err, "tenon: tenon generate: --prompt holds token 10, and the model knows 0 to 9\n");
  const Ended closed =
      scratch.run({"generate", "runs/tiny", "--prompt", "3", "--tokens", "6", "--temperature", "0", "--think",
                   "1", "--think-grace", "1", "--think-close", "0 0"});
  EXPECT_EQ(closed.status, 0) << closed.err;
  EXPECT_EQ(closed.out.substr(0, 10), "3 4 5 0 0 ") << "no token is known to end a line";
  const Ended tag = scratch.run({"generate", "runs/tiny", "--prompt", "3", "--think", "1"});
  EXPECT_THAT(tag.err, HasSubstr("--think-close must hold token ids such as \"15496 995\""));
  EXPECT_THAT(
      scratch.run({"generate", "runs/tiny", "--prompt", "3", "--think", "1", "--think-close", "12"}).err,
      HasSubstr("thinking.close holds token 12, and the model knows 0 to 9"));
  const Ended stop = scratch.run({"generate", "runs/tiny", "--prompt", "3", "--stop", "4"});
  EXPECT_EQ(stop.err,
            "tenon: tenon generate: --stop is a text, and this run was trained on token files, whose text is "
            "unknown\n");
}

TEST(GenerateFromConversations, AnswersAsInTrainingAndIsScored) {
  const Scratch scratch;
  std::string chats, asked;
  for (int i = 0; i < 40; ++i) {
    const std::string question =
        R"({"messages": [{"role": "user", "content": "q)" + std::to_string(i % 10) + R"("})";
    chats += question + R"(, {"role": "assistant", "content": "it is 7"}]})" + "\n";
    if (i < 8) asked += question + R"(], "answer": ")" + (i % 4 == 0 ? "8" : "7") + "\"}\n";
  }
  write_file(scratch / "chats.jsonl", chats);
  write_file(scratch / "asked.jsonl", asked);
  const std::string data = replaced(Scratch::kRun, "type = \"text\"\npath = \"text.txt\"",
                                    "type = \"conversations\"\npath = \"chats.jsonl\"");
  write_file(scratch / "run.toml", replaced(data, "[model]", R"([data.template.user]
after = "="
[data.template.assistant]
after = "."
[model])"));
  const Ended trained = scratch.train({"--set", "run.steps=300", "--set", "recovery.every=300"});
  ASSERT_EQ(trained.status, 0) << trained.err;

  const Ended ended = scratch.run({"generate", "runs/tiny", "--prompts", "asked.jsonl", "--tokens", "20",
                                   "--temperature", "0", "--reward", "exact", "--out", "answers.jsonl"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out, "reward 0.75\nreward/exact 0.75\n");
  const std::string answers = read_file(scratch / "answers.jsonl");
  EXPECT_EQ(std::count(answers.begin(), answers.end(), '\n'), 8);
  EXPECT_THAT(answers,
              StartsWith("{\"line\": 1, \"prompt\": \"q0=\", \"text\": \"it is 7\", \"tokens\": 8, \"ids\": "
                         "[105, 116, 32, 105, 115, 32, 55, 46], \"log_prob\": -"));
  EXPECT_THAT(answers,
              HasSubstr(", \"end\": \"stop\", \"reward\": 0, \"parts\": {\"exact\": 0}}\n{\"line\": 2, "));

  const struct {
    const char *line, *says;
    int status;
  } cases[] = {
      {R"({"messages": [{"role": "user", "content": "q1"}]})",
       "tenon: plugin tenon.reward_basic (reward.exact): asked.jsonl:1: the sample lacks the field 'answer', "
       "which reward exact reads; "
       "add it to the line\n",
       1},
      {R"({"messages": [{"role": "nobody", "content": "q1"}], "answer": "7"})",
       "tenon: asked.jsonl:1: plugin tenon.text (dataset.conversations): message 0: the role 'nobody' is not "
       "in the template, which has "
       "user, assistant; add [data.template.nobody]\n",
       2},
  };
  for (const auto& c : cases) {
    write_file(scratch / "asked.jsonl", std::string(c.line) + "\n");
    const Ended refused =
        scratch.run({"generate", "runs/tiny", "--prompts", "asked.jsonl", "--reward", "exact"});
    EXPECT_EQ(refused.status, c.status) << c.line;
    EXPECT_THAT(refused.err, ::testing::EndsWith(c.says)) << c.line;
  }
}

TEST(GenerateFromLargerVocabularies, PrintsTokensThatNoTextHas) {
  const Scratch scratch;
  // A model of 300 tokens for bytes; untrained, so that it draws all of them.
  write_file(scratch / "run.toml", replaced(Scratch::kRun, "width = 16", "width = 16\nvocabulary = 300"));
  ASSERT_EQ(scratch.train().status, 0);
  const Ended ended = scratch.run(
      {"generate", "runs/tiny", "--prompt", "line", "--tokens", "200", "--temperature", "9", "--json"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr(" 29")) << "an id above all bytes";
  EXPECT_THAT(
      scratch.run({"generate", "runs/tiny", "--prompt", "line", "--tokens", "200", "--temperature", "9"}).out,
      HasSubstr("\xEF\xBF\xBD"));
}

TEST(GenerateFromOtherModels, SaysThatItIsNoLanguageModel) {
  const Scratch scratch;
  // A table of rows, which no language model reads: the run is rewritten, not trained.
  ASSERT_EQ(scratch.train().status, 0);
  const fs::path resolved = scratch / "runs/tiny/1/config.resolved.toml";
  const std::string text = read_file(resolved);
  const auto begin = text.find("[model]"), end = text.find("\n[", begin + 1);
  write_file(resolved, text.substr(0, begin) + "[model]\ntype = \"mlp\"\nhidden = [8]\n" + text.substr(end));
  const Ended ended = scratch.run({"generate", "runs/tiny", "--prompt", "a"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.err,
            "tenon: tenon generate: run runs/tiny/1 trains the model 'mlp', which is no language model (it "
            "does not "
            "offer tenon.model.language/1)\n");
}

}  // namespace
}  // namespace tenon::integration::generate_test
