"""Prompts and texts of many kinds for the SmolLM2 goldens, all written for this purpose."""

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def chat(*messages: str, system: str = SYSTEM) -> str:
    """ChatML; messages alternate user, assistant, user, ..."""
    text = f"<|im_start|>system\n{system}<|im_end|>\n"
    for i, message in enumerate(messages):
        text += f"<|im_start|>{'assistant' if i % 2 else 'user'}\n{message}<|im_end|>\n"
    return text + "<|im_start|>assistant\n"


PROMPTS = {
    "chat_capital": chat("What is the capital of France?"),
    "chat_explain": chat("Explain in simple words why the sky is blue."),
    "chat_code": chat("Write a Python function that reverses a linked list."),
    "chat_list": chat("Give me five ideas for a rainy Sunday with two small children."),
    "chat_poem": chat("Write a short poem about an old lighthouse."),
    "chat_math": chat("A train travels 180 km in 2.5 hours. What is its average speed?"),
    "chat_system": chat("Who are you?", system="You are a grumpy pirate. Answer in one sentence."),
    "chat_turns": chat(
        "I am planting tomatoes. When should I start?",
        "Start seeds indoors six to eight weeks before the last frost.",
        "And how much sun do they need?",
    ),
    "chat_french": chat("Traduis en anglais : « Le petit chat dort sur le canapé. »"),
    "chat_json": chat('Extract the fields as JSON: "Ada Lovelace, born 1815 in London, mathematician"'),
    "plain_story": "Once upon a time, in a village at the edge of a great forest, there lived a clockmaker who",
    "plain_fact": "The mitochondrion is an organelle found in the cells of most eukaryotes. Its main function is",
    "plain_list": "Ingredients:\n- 2 cups of flour\n- 1 teaspoon of baking soda\n-",
    "plain_python": 'def fibonacci(n: int) -> int:\n    """Returns the n-th Fibonacci number."""\n',
    "plain_c": "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n",
    "plain_table": "| Country | Capital |\n|---|---|\n| Italy | Rome |\n| Japan | Tokyo |\n|",
    "plain_digits": "1 1 2 3 5 8 13 21 34 55 89",
    "plain_unicode": "Die Straße nach Málaga führt über den Zürichsee: 東京 → München, naïve café ☕️ —",
    "plain_single_token": "The",
    "plain_long": (
        "Minutes of the spring meeting of the harbour committee. Present: the harbour master, the treasurer, two "
        "representatives of the fishing cooperative and the engineer. The harbour master opened the meeting by "
        "reporting that the dredging of the inner basin had been finished three weeks late, because the barge had "
        "been damaged in the February storms. The treasurer said that the delay had cost nothing, since the "
        "contract held the company to a fixed price. The engineer had inspected the northern breakwater and found "
        "eleven displaced stones, none of which endangered the structure; she proposed to repair them in the "
        "summer, when the water was calm. The cooperative asked for a second crane on the western quay. After a "
        "long discussion it was decided that the engineer would compare the price of a new crane with that of a "
        "used one from the yard across the bay, and that the committee would vote on it at its next meeting. The "
        "treasurer then presented the accounts of the past year. Income from mooring fees had risen by four per "
        "cent, while the cost of electricity had fallen, thanks to the new lamps along the promenade. Finally,"
    ),
}

SCORE_TEXTS = {
    "english": (
        "The old observatory stood on a hill above the town, its copper dome green with age. Every clear night the "
        "astronomer climbed the narrow stairs, opened the shutters and pointed the telescope at the same faint "
        "star. She had been watching it for thirty years, and for thirty years it had done nothing at all. Then, "
        "on the second of March, it doubled in brightness within an hour."
    ),
    "code": (
        "template <typename T>\nclass Stack {\n public:\n  void Push(T value) { items_.push_back(std::move(value)); }\n"
        "  bool empty() const { return items_.empty(); }\n\n private:\n  std::vector<T> items_;\n};\n"
    ),
    "chat": chat("Name three primary colors.") + "The three primary colors are red, yellow and blue.<|im_end|>\n",
    "languages": (
        "Der Zug fährt um acht Uhr ab. Le train part à huit heures. El tren sale a las ocho. Поезд отправляется в "
        "восемь часов. 列車は八時に出発します。 기차는 여덟 시에 출발합니다. 🚂🕗"
    ),
    "numbers": "3.14159265358979 2.71828182845904 1.41421356237309\n2024-02-29T23:59:60Z 0xDEADBEEF 1e-12 99.9%\n",
    "noise": "zxqv wk##j 9f8e7d <<<>>> ~~~ qwpoeiruty ;;;; \t\t\n\n\n aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "long": PROMPTS["plain_long"] * 4,
}
