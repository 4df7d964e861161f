// Rows of conversations: every answer learned once and nothing else, borders, held-out conversations, lines
// that cannot be used; and through a model, that packing and prompts change nothing.
#include "conversations.hpp"

#include <tenon/sdk/json.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/folders.hpp>
#include <tenon/testing/layer_harness.hpp>
#include <tenon/testing/tensors.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

namespace tenon::text::conversations_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

constexpr const char* kTemplate = "[template.user]\nafter = '='\n[template.assistant]\nafter = '.'\n";

std::string chat(const std::string& question, const std::string& answer, const std::string& after = "") {
  return R"({"messages": [{"role": "user", "content": ")" + question +
         R"("}, {"role": "assistant", "content": ")" + answer + "\"}" +
         (after.empty() ? "" : R"(, {"role": "user", "content": ")" + after + "\"}") + "]}\n";
}

/// Conversations of different length, each with digits of its own.
std::string many(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += chat(std::to_string(i) + std::string(static_cast<std::size_t>(i % 5), 'q'),
                 std::to_string(i * i) + std::string(static_cast<std::size_t>(i % 3), 'a'));
  return text;
}

/// Knows one component: a tokenizer without options.
class OneTokenizer final : public ComponentCatalog {
 public:
  ComponentSchema describe(std::string_view, std::string_view) const override {
    return {"tokenizer.marked", {}};
  }
};

/// Bytes and a special token.
class EndedBytes final : public ByteTokenizer {
 public:
  std::int64_t vocabulary() const override { return 257; }
  std::int32_t end_of_text() const override { return 256; }
  std::span<const SpecialToken> special() const override { return {&end_, 1}; }
  std::string_view token_bytes(std::int32_t id) const override {
    return id == 256 ? end_.text : ByteTokenizer::token_bytes(id);
  }
  std::string_view digest() const override { return "of ended bytes"; }

 private:
  SpecialToken end_{"<|end|>", 256};
};

struct Opened {
  std::unique_ptr<testing::QuietHost> host = std::make_unique<testing::QuietHost>();
  std::unique_ptr<ResolvedOptions> options;
  std::unique_ptr<Conversations> data;
  Conversations* operator->() const { return data.get(); }
};

/// `tokenizer` is the component that `tokenizer = {type = "marked"}` names.
Opened made(const std::string& toml, Tokenizer* tokenizer = nullptr, const char* roles = kTemplate) {
  const Config config = Config::parse(toml + "\n" + roles, "test.toml", {});
  const OneTokenizer catalog;
  Opened opened;
  opened.options = resolve_options(OptionRequest{.table = config.root(),
                                                 .owner = "data.conversations",
                                                 .specs = option_list(Conversations::kOptions),
                                                 .catalog = &catalog})
                       .options;
  for (const auto& entry : opened.options->inner()) entry.second->instance = {tokenizer, [](void*) {}};
  opened.data = std::make_unique<Conversations>(*opened.options, *opened.host);
  return opened;
}

using Line = std::vector<std::int32_t>;

/// One row by fields; without packing it has documents as if it were packed.
struct Row {
  Line tokens, targets, documents, positions;
};

/// Rows of one epoch of train, or of val.
std::vector<Row> rows_of(Conversations& data, Split split) {
  const DataInfo& info = data.info();
  const std::int64_t context = info.tokens_per_sample, batch = data.batch();
  std::vector<Line> memory(info.fields.size(), Line(static_cast<std::size_t>(batch * context)));
  std::vector<TensorView> views;
  for (Line& field : memory) views.emplace_back(TensorView{field.data(), Shape{batch, context}, DType::kI32});
  const std::int64_t count = split == Split::kTrain ? info.train_samples : info.val_samples;
  std::vector<Row> rows;
  for (std::int64_t first = 0; first < count; first += batch) {
    const std::int64_t now = std::min(batch, count - first);
    data.read({.split = split, .first = first, .count = now}, views);
    for (std::int64_t i = 0; i < now; ++i) {
      const auto line = [&](std::size_t field) {
        return Line(memory[field].begin() + i * context, memory[field].begin() + (i + 1) * context);
      };
      rows.push_back({line(0), line(1), {}, {}});
      Row& row = rows.back();
      if (memory.size() > 2) {
        row.documents = line(2);
        row.positions = line(3);
        continue;
      }
      for (std::int32_t place = 0; place < context; ++place) {  // one document and its padding
        row.documents.push_back(row.tokens[static_cast<std::size_t>(place)] == 0 ? 1 : 0);
        row.positions.push_back(place);
      }
    }
  }
  return rows;
}

std::string text_of(const Line& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += id < 0 ? '-' : static_cast<char>(id == 0 ? '_' : id);
  return text;
}

/// Conversations as the rows hold them: tokens that are read, and the targets.
std::multiset<std::string> documents_of(const std::vector<Row>& rows) {
  std::multiset<std::string> found;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.tokens.size();) {
      std::size_t end = i + 1;
      while (end < row.tokens.size() && row.documents[end] == row.documents[i]) ++end;
      const auto cut = [&](const Line& line) { return text_of({line.begin() + i, line.begin() + end}); };
      if (row.tokens[i] != 0) found.insert(cut(row.tokens) + " " + cut(row.targets));
      for (std::size_t k = i; k < end && row.tokens[i] != 0; ++k)
        EXPECT_EQ(row.positions[k], static_cast<std::int32_t>(k - i));
      i = end;
    }
  }
  return found;
}

class ConversationsTest : public testing::FolderTest {
 protected:
  std::string common(const std::string& text, const std::string& more) {
    return "path = '" + write("chats.jsonl", text) + "'\n" + more;
  }
  Opened open(const std::string& text, const std::string& more, std::uint64_t seed = 1) {
    Opened data = made(common(text, more));
    data->open(seed);
    return data;
  }
};

TEST_F(ConversationsTest, OneInARowHasItsAnswerAsTargets) {
  const Opened data = open(chat("1+1", "2") + "\n" + chat("5", "6", "bye"),
                           "pack = 'none'\ncontext = 12\nbatch = 1\nval_fraction = 0\norder = 'sequential'");
  const std::vector<Row> rows = rows_of(*data.data, Split::kTrain);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(text_of(rows[0].tokens), "1+1=2_______");
  EXPECT_EQ(text_of(rows[0].targets), "---2.-------");
  EXPECT_EQ(text_of(rows[1].tokens), "5=6.bye_____");
  EXPECT_EQ(text_of(rows[1].targets), "-6.---------");
  const DataInfo& info = data->info();
  ASSERT_EQ(info.fields.size(), 2u);
  EXPECT_EQ(info.attributes.at(0).name, "vocabulary");
  EXPECT_EQ(info.attributes.at(0).value, 256);
  EXPECT_EQ(info.tokens_per_sample, 12);
  ASSERT_EQ(info.sources.size(), 1u);
  EXPECT_EQ(info.sources[0].sha256.size(), 64u);
}

TEST_F(ConversationsTest, WholeConversationsShareRowsByBestFit) {
  // 6, 3, 4 and 7 places: rows of 10 hold 7 + 3 and 6 + 4.
  const Opened data = open(chat("1234", "5") + chat("6", "7") + chat("8", "90") + chat("abcd", "ef"),
                           "context = 10\nbatch = 2\nval_fraction = 0\norder = 'sequential'");
  EXPECT_EQ(data->info().train_samples, 2);
  const std::vector<Row> rows = rows_of(*data.data, Split::kTrain);
  EXPECT_EQ(text_of(rows[0].tokens), "1234=58=90");
  EXPECT_EQ(text_of(rows[0].targets), "----5.-90.");
  EXPECT_THAT(rows[0].documents, ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(rows[0].positions, ElementsAre(0, 1, 2, 3, 4, 5, 0, 1, 2, 3));
  EXPECT_EQ(text_of(rows[1].tokens), "6=7abcd=ef");
  EXPECT_THAT(data.host->messages, ElementsAre("train: 4 conversations in 2 rows of 10 places, of which 0.00 "
                                               "% are padding"));
}

TEST_F(ConversationsTest, PaddingIsADocumentOfItsOwnWithoutTargets) {
  const Opened data = open(chat("12", "3"), "context = 8\nbatch = 1\nval_fraction = 0");
  const Row row = rows_of(*data.data, Split::kTrain)[0];
  EXPECT_EQ(text_of(row.targets), "--3.----");
  EXPECT_THAT(row.documents, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(row.positions, ElementsAre(0, 1, 2, 3, 0, 0, 0, 0));
  EXPECT_THAT(data.host->messages,
              ElementsAre(HasSubstr("1 rows of 8 places, of which 50.00 % are padding")));
}

TEST_F(ConversationsTest, EveryConversationIsReadOnceWhateverThePacking) {
  const std::string text = many(40);
  const auto documents = [&](const std::string& more) {
    const Opened data = open(text, "val_fraction = 0\n" + more);
    return documents_of(rows_of(*data.data, Split::kTrain));
  };
  const std::multiset<std::string> whole = documents("batch = 3\ncontext = 30");
  EXPECT_EQ(whole.size(), 40u);
  EXPECT_EQ(documents("batch = 4\ncontext = 19"), whole);
  EXPECT_EQ(documents("context = 2000\nbatch = 1\npack = 'documents'"), whole);
  for (const std::string& one : whole) {
    const std::size_t gap = one.find(' '), equals = one.find('=');
    const std::string tokens = one.substr(0, gap), targets = one.substr(gap + 1);
    EXPECT_EQ(targets, std::string(equals, '-') + tokens.substr(equals + 1) + ".") << one;
  }
}

TEST_F(ConversationsTest, CutConversationsStillPredictEveryAnswerTokenOnce) {
  const std::string text = many(40);
  const auto counts = [&](const std::string& more) {
    const Opened data = open(text, "batch = 1\nval_fraction = 0\n" + more);
    std::map<std::int32_t, int> found;
    for (const Row& row : rows_of(*data.data, Split::kTrain)) {
      for (const std::int32_t target : row.targets) ++found[target];
      // Positions count from the begin of each piece, and nothing is predicted across a border.
      for (std::size_t i = 1; i < row.tokens.size(); ++i) {
        const bool border = row.documents[i] != row.documents[i - 1];
        EXPECT_TRUE(row.positions[i] == (border ? 0 : row.positions[i - 1] + 1) || row.tokens[i] == 0);
        if (border && row.tokens[i] != 0) {
          EXPECT_EQ(row.targets[i - 1], '.');
        }
      }
    }
    found.erase(-1);
    return found;
  };
  const auto whole = counts("context = 30");
  EXPECT_EQ(whole.at('.'), 40);
  for (const char* context : {"1", "2", "7", "11", "500"})
    EXPECT_EQ(counts("pack = 'documents'\ncontext = " + std::string(context)), whole) << context;
}

TEST_F(ConversationsTest, HoldsOutWholeConversationsTheSameForEverySeed) {
  const std::string text = many(50);
  std::multiset<std::string> all, held;
  for (const std::uint64_t seed : {1, 2}) {
    for (const char* pack : {"whole", "none"}) {
      const Opened data =
          open(text, "context = 30\nbatch = 1\nval_fraction = 0.2\npack = '" + std::string(pack) + "'", seed);
      std::multiset<std::string> both = documents_of(rows_of(*data.data, Split::kTrain));
      const std::multiset<std::string> validated = documents_of(rows_of(*data.data, Split::kVal));
      EXPECT_EQ(validated.size(), 10u);
      if (held.empty()) held = validated;
      EXPECT_EQ(validated, held);
      both.insert(validated.begin(), validated.end());
      if (all.empty()) all = both;
      EXPECT_EQ(both, all);
      EXPECT_EQ(both.size(), 50u);
    }
  }
}

TEST_F(ConversationsTest, ValidatesOnAFileOfItsOwn) {
  const std::string val = write("val.jsonl", chat("7", "é"));
  const Opened data = open(many(4), "context = 30\nbatch = 1\nval_path = '" + val + "'");
  EXPECT_THAT(documents_of(rows_of(*data.data, Split::kVal)).size(), 1u);
  EXPECT_EQ(documents_of(rows_of(*data.data, Split::kTrain)).size(), 4u);
  EXPECT_EQ(data->info().sources.size(), 2u);
  EXPECT_EQ(data->info().bytes_per_target, 1);
}

TEST_F(ConversationsTest, OffersItsTextAndPrompts) {
  const Opened data = open(many(4), "context = 30\nbatch = 1");
  auto* tokenized = static_cast<TokenizedText*>(data->query(TokenizedText::kId));
  ASSERT_NE(tokenized, nullptr);
  EXPECT_EQ(tokenized->tokenizer().vocabulary(), 256);
  auto* text = static_cast<ConversationText*>(data->query(ConversationText::kId));
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(tokenized->tokenizer().decode(text->prompt(parse_json(chat("1+1", "2"), "line"))), "1+1=");
  EXPECT_EQ(tokenized->tokenizer().decode(text->answer_end()), ".");
  EXPECT_EQ(data->query("tenon.dataset.other/1"), nullptr);
}

TEST_F(ConversationsTest, WritesTokensOfTheTokenizerThatIsNamed) {
  EndedBytes tokenizer;
  const std::string text = chat("1", "23") + chat("<|end|>", "4");
  const std::string val = write("val.jsonl", text);
  const Opened data =
      made(common(text, "context = 12\nbatch = 1\npack = 'none'\norder = 'sequential'\nval_path = '" + val +
                            "'\ntokenizer = {type = 'marked'}\nspecial = ['<|end|>']"),
           &tokenizer, "[template.user]\nafter = '<|end|>'\n[template.assistant]\nafter = '<|end|>'\n");
  data->open(1);
  const std::vector<Row> rows = rows_of(*data.data, Split::kTrain);
  EXPECT_THAT(std::vector(rows[0].tokens.begin(), rows[0].tokens.begin() + 4),
              ElementsAre('1', 256, '2', '3'));
  EXPECT_THAT(std::vector(rows[0].targets.begin(), rows[0].targets.begin() + 5),
              ElementsAre(-1, '2', '3', 256, -1));
  EXPECT_EQ(rows[1].tokens[0], '<') << "in a message the token's text is text";
  const DataInfo& info = data->info();
  EXPECT_EQ(info.attributes.at(0).value, 257);
  EXPECT_EQ(info.sources.back().path, "tokenizer");
  EXPECT_EQ(info.sources.back().sha256, "of ended bytes");
  EXPECT_EQ(info.bytes_per_target, 3.0 / 5) << "the end is no byte of a text";
  EXPECT_EQ(&data->tokenizer(), &tokenizer);
}

TEST_F(ConversationsTest, NamesLinesThatCannotBeUsed) {
  const std::string bad = chat("1", "2") + "{\"messages\": [\n\n" + R"({"messages": []})" + "\n" +
                          chat("1234567", "8") + chat("\xff", "3") +
                          R"({"messages": [{"role": "tool", "content": "x"}]})" + "\n";
  const std::string path = folder_ + "/chats.jsonl";
  const std::string toml = "context = 6\nbatch = 1\nval_fraction = 0\n";
  const std::string message = error_of([&] { open(bad, toml); });
  EXPECT_THAT(message, HasSubstr("data file '" + path +
                                 "': 5 of 6 lines cannot be used: line 2: its text: not "
                                 "valid JSON at byte "));
  EXPECT_THAT(message, HasSubstr("; line 4: expected a table with a list \"messages\", found an empty list; "
                                 "line 5: 9 places, and a row has context = 6; raise context, or set pack = "
                                 "\"documents\", which cuts; and 2 more. That is more than max_bad_share = 0 "
                                 "allows; mend the file, or raise it"));
  EXPECT_THAT(error_of([&] { open(bad, toml + "max_bad_share = 0.8"); }), HasSubstr("5 of 6 lines"));
  const Opened data = open(bad, toml + "max_bad_share = 0.9");
  EXPECT_EQ(data->info().train_samples, 1);
  EXPECT_EQ(text_of(rows_of(*data.data, Split::kTrain)[0].tokens), "1=2___");
  EXPECT_THAT(data.host->messages.at(0), HasSubstr("5 of 6 lines cannot be used"));
  EXPECT_THAT(data.host->messages.at(0), HasSubstr(". They are left out"));
  // Cutting takes longer ones.
  EXPECT_EQ(open(chat("1234567", "8"), toml + "pack = 'documents'")->info().train_samples, 2);
}

TEST_F(ConversationsTest, RefusesFilesWithoutConversations) {
  EXPECT_EQ(error_of([&] { open("\n \n", ""); }),
            "data file '" + folder_ + "/chats.jsonl': expected a conversation a line, found none");
  EXPECT_EQ(error_of([&] { made("path = '" + folder_ + "'")->open(1); }),
            "data file '" + folder_ + "': cannot be read beyond line 0");
  EXPECT_THAT(error_of([&] { open("{\n", "max_bad_share = 1.0"); }),
              HasSubstr("1 of 1 lines cannot be used: line 1: its text: not valid JSON at byte 2: "));
  EXPECT_THAT(error_of([&] { open(many(3), "batch = 9\nval_fraction = 0\ncontext = 30"); }),
              HasSubstr("batch = 9 is larger than the part to train on"));
}

// Through a model. Prompts are labels that no loss reads.

constexpr const char* kModel =
    "layers = 2\nwidth = 16\nheads = 2\nwindow = 9\ncontext = 512\ninit_scale = 0.3";

struct Learned {
  double loss = 0, count = 0;
  std::map<std::string, std::vector<double>> gradients;
};

std::vector<double> numbers(const std::vector<Row>& rows, Line Row::*field) {
  std::vector<double> all;
  for (const Row& row : rows) all.insert(all.end(), (row.*field).begin(), (row.*field).end());
  return all;
}

Learned learn(const DataInfo& info, const std::vector<Row>& rows) {
  testing::Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("fp32", "");
  const auto model = bench.make_component<Model>("gpt_neo", kModel);
  std::vector<testing::TestField> fields;
  const Shape shape{static_cast<std::int64_t>(rows.size()), info.tokens_per_sample};
  const std::pair<const char*, Line Row::*> known[] = {{"tokens", &Row::tokens},
                                                       {"targets", &Row::targets},
                                                       {"documents", &Row::documents},
                                                       {"positions", &Row::positions}};
  for (std::size_t i = 0; i < info.fields.size(); ++i)
    fields.push_back({known[i].first, shape, DType::kI32, numbers(rows, known[i].second)});
  testing::LayerHarness harness(
      {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
      model->build(info).nodes, {}, fields);
  Learned learned;
  learned.loss = harness.forward();
  learned.count = harness.executor().losses()[0].count;
  harness.backward(1.0 / learned.count, true);
  learned.gradients = harness.all_gradients();
  return learned;
}

TEST_F(ConversationsTest, C5_LabelsOfPromptsChangeNeitherLossNorGradient) {
  for (const char* pack : {"whole", "none"}) {
    const std::string more =
        "context = 24\nbatch = 1\nval_fraction = 0\norder = 'sequential'\npack = '" + std::string(pack) + "'";
    const std::string one = chat("12+3", "15", "ok") + chat("5", "78", "thanks") + chat("900", "1");
    const std::string two = chat("12+3", "15", "no") + chat("5", "78", "again?") + chat("900", "1");
    const Opened data = open(one, more);
    const std::vector<Row> rows = rows_of(*data.data, Split::kTrain);
    const Learned usual = learn(data->info(), rows);
    EXPECT_EQ(usual.count, 3 + 3 + 2) << "answers and their ends";
    std::vector<Row> other = rows;
    for (Row& row : other)
      for (std::int32_t& target : row.targets)
        if (target < 0) target = -100;
    const Learned relabelled = learn(data->info(), other);
    EXPECT_EQ(relabelled.loss, usual.loss);
    EXPECT_EQ(relabelled.gradients, usual.gradients);
    // Messages of users are predicted by nothing, so those after the last answer change nothing.
    const Opened changed = open(two, more);
    const Learned thanked = learn(changed->info(), rows_of(*changed.data, Split::kTrain));
    EXPECT_EQ(thanked.loss, usual.loss);
    EXPECT_EQ(thanked.gradients, usual.gradients);
    // An answer's label does change both.
    other = rows;
    *std::find_if(other[0].targets.begin(), other[0].targets.end(), [](std::int32_t id) { return id >= 0; }) =
        'x';
    const Learned wrong = learn(data->info(), other);
    EXPECT_NE(wrong.loss, usual.loss);
    EXPECT_NE(wrong.gradients, usual.gradients);
  }
}

TEST_F(ConversationsTest, C5_PackedConversationsHaveTheLossOfUnpackedOnes) {
  const auto learned = [&](const std::string& more) {
    const Opened data = open(many(17), "batch = 1\nval_fraction = 0\n" + more);
    return learn(data->info(), rows_of(*data.data, Split::kTrain));
  };
  const Learned apart = learned("context = 20\npack = 'none'");
  const double loss = apart.loss / apart.count;
  for (const char* more : {"context = 20", "context = 128", "context = 512\npack = 'documents'"}) {
    const Learned packed = learned(more);
    EXPECT_EQ(packed.count, apart.count) << more;
    EXPECT_NEAR(packed.loss / packed.count, loss, 1e-6 * loss) << more;
    for (const auto& entry : apart.gradients)
      EXPECT_LT(testing::relative_error(packed.gradients.at(entry.first), entry.second), 1e-5) << entry.first;
  }
}

}  // namespace
}  // namespace tenon::text::conversations_test
