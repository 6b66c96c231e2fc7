"""Candidates for the tasks of compare_speculation.py: summaries with quotes, edits of code, and JSON to
reformat. Written before anything was measured; choose.py says which are used, and why.
"""

# (name, instruction, text)
CANDIDATES = [
    # Summaries with quotes.
    ('quote-harbour', 'Summarize the report in two sentences. Quote the harbour master word for word.',
     'The old lighthouse at Carrow Point will be open to visitors again from May. The tower was closed three '
     'years ago, when a storm broke the glass of the lantern room and water ran down the spiral stairs. '
     'Volunteers from the village have since replaced the glass, painted the walls and rebuilt forty-two steps. '
     'Harbour master Ines Duarte said: "We thought the tower was lost, but the people of this village would not '
     'let it fall into the sea." Tickets cost four euros, and children under ten pay nothing.'),
    ('quote-bees', 'List the three most important sentences of the text, each word for word.',
     'City councils in the north are letting the grass on roundabouts grow. Bees find more flowers there than in '
     'most gardens, because nobody sprays them. A two-year count found sixty-one species of wild bees on nineteen '
     'roundabouts. The councils also save money, since the grass is cut twice a year instead of every second week. '
     'Some drivers complain that they see less, so the edges are still kept short. Schools have begun to adopt '
     'roundabouts and count the bees themselves.'),
    ('quote-bridge', 'Repeat the first paragraph exactly, then say in one sentence what follows.',
     'The wooden bridge over the Lenn was built in 1764 by carpenters from the valley. It has no nails: every beam '
     'is held by oak pegs and by its own weight. In the flood of 1910 the water reached the railing, and people '
     'put barrels of stones on the deck so that the bridge would not float away.\n\nToday the bridge carries '
     'bicycles only. A sensor in the middle pier reports its movements every hour, and an engineer reads them '
     'once a week.'),
    ('quote-minutes', 'Which decisions were made? Quote each of them from the minutes.',
     'Minutes of the gardening club, 4 March. Present: nine members. Decision: The club buys a second water tank '
     'of one thousand litres. Decision: The tool shed is locked at sunset, and every member gets a key. There was '
     'a long talk about slugs without a result. Decision: The summer party is on the last Saturday of June, and '
     'each member brings one dish. Anna reported that the compost is ready.'),
    ('quote-review', 'Copy the sentences of the review that praise the product.',
     'I bought this kettle in January and use it every day. The water boils in less than three minutes, faster '
     'than in any kettle I have had. The handle stays cool even when the kettle is full. The lid is hard to open '
     'with wet hands. The switch feels solid and has a clear blue light. The cable could be longer. For this '
     'price you will not find a better kettle.'),
    ('quote-letter', 'Correct the two spelling mistakes in the letter and write it out in full.',
     'Dear Mrs Holloway, thank you for your letter of the third of May. We have recieved your order of twelve '
     'blue chairs and four round tables. The chairs will be delivered on Monday between eight and ten in the '
     'morning. The tables are not in our warehouse at the moment, but we expect them by the end of the month. We '
     'will call you a day before the delivary. Yours sincerely, Tom Beck, Beck & Sons Furniture.'),
    ('quote-recipe', 'Write the recipe again, for the same dish, with salt instead of sugar.',
     'Put two hundred grams of flour in a bowl. Add one teaspoon of sugar and a packet of yeast. Pour in a cup of '
     'warm water and stir until there are no lumps. Knead the dough for ten minutes and let it rest in a warm '
     'place for one hour. Roll it out as thin as a finger, put it on a tray and bake it for fifteen minutes. '
     'Sprinkle it with sugar while it is hot.'),
    ('quote-speech', 'Repeat the speech without the last sentence.',
     'Friends, we have come a long way since we met in the back room of the bakery with six chairs and one lamp. '
     'Back then we had no money, no press and no paper. Today our newspaper is read in eleven towns. We print '
     'what we have seen and what we can prove. We correct our mistakes on the first page and not on the last. Let '
     'us keep it that way for as long as there is ink. And now let us eat cake.'),
    ('quote-rules', 'Write the rules again as a numbered list.',
     'Please return books within four weeks. Please do not write in the books. Food is not allowed in the reading '
     'room. Telephones must be silent. Children under six need an adult with them. Large bags go into the lockers '
     'at the entrance. The library closes at seven in the evening, and on Saturdays at noon.'),
    ('quote-weather', 'Extract all sentences about tomorrow from the forecast, word for word.',
     'Today it stays dry in the whole country. Tomorrow rain comes in from the west and reaches the capital by '
     'noon. In the mountains the wind is strong today. Tomorrow the snow line falls to nine hundred metres. '
     'Temperatures today are between eight and twelve degrees. Tomorrow it will not be warmer than six degrees. '
     'The weekend will be sunny again.'),
    ('quote-museum', 'Put the text into the past tense, and change nothing else.',
     'The museum opens at nine. A guide meets the visitors at the door and leads them to the hall of clocks. The '
     'oldest clock is made of iron and shows only the hours. Every day at noon all the clocks strike together, '
     'and the noise is so great that the guide covers her ears. The last tour begins at four. The shop sells '
     'small clocks of tin and postcards of the large ones.'),
    ('quote-interview', 'Write down only the answers of the interview, word for word.',
     'Q: When did you begin to build violins? A: I began when I was fourteen, in the workshop of my uncle in '
     'Cremona. Q: What wood do you use? A: I use spruce for the top and maple for the back, and both must be dry '
     'for at least ten years. Q: How long does one violin take? A: One violin takes me about three months, and '
     'the varnish alone takes three weeks. Q: Do you play? A: I play badly, but I listen well.'),
    # Edits of code.
    ('code-rename', 'Rename the variable `n` to `count` and return the whole function.',
     'def average(values):\n    n = 0\n    total = 0.0\n    for value in values:\n        if value is None:\n'
     '            continue\n        n += 1\n        total += value\n    if n == 0:\n        return 0.0\n'
     '    return total / n\n'),
    ('code-docstring', 'Add a docstring to the function and return the whole function.',
     'def merge_intervals(intervals):\n    result = []\n    for start, end in sorted(intervals):\n'
     '        if result and start <= result[-1][1]:\n            result[-1][1] = max(result[-1][1], end)\n'
     '        else:\n            result.append([start, end])\n    return result\n'),
    ('code-bug', 'Fix the bug: the loop skips the last element. Return the whole program.',
     '#include <stdio.h>\n\nint sum(const int* values, int size) {\n  int total = 0;\n'
     '  for (int i = 0; i < size - 1; i++) {\n    total += values[i];\n  }\n  return total;\n}\n\n'
     'int main(void) {\n  int values[] = {3, 1, 4, 1, 5, 9};\n  printf("%d\\n", sum(values, 6));\n  return 0;\n}\n'),
    ('code-class', 'Add a method `area` to the class and return the whole class.',
     'class Rectangle:\n    def __init__(self, width, height):\n        self.width = width\n'
     '        self.height = height\n\n    def perimeter(self):\n        return 2 * (self.width + self.height)\n\n'
     '    def scale(self, factor):\n        self.width *= factor\n        self.height *= factor\n'),
    ('code-sql', 'Add the condition `city = \'Lisbon\'` to the query and return the whole query.',
     'SELECT customers.name, customers.email, COUNT(orders.id) AS num_orders, SUM(orders.total) AS revenue\n'
     'FROM customers\nJOIN orders ON orders.customer_id = customers.id\nWHERE orders.created_at >= \'2024-01-01\'\n'
     'GROUP BY customers.name, customers.email\nORDER BY revenue DESC\nLIMIT 20;\n'),
    ('code-js', 'Change `var` to `const` and return the whole script.',
     'var button = document.querySelector("#send");\nvar field = document.querySelector("#message");\n'
     'var list = document.querySelector("#list");\nbutton.addEventListener("click", function () {\n'
     '  var item = document.createElement("li");\n  item.textContent = field.value;\n  list.appendChild(item);\n'
     '  field.value = "";\n});\n'),
    ('code-types', 'Add type annotations to the arguments and return the whole function.',
     'def find_longest_word(text, min_length):\n    longest = ""\n    for word in text.split():\n'
     '        word = word.strip(".,;:!?")\n        if len(word) >= min_length and len(word) > len(longest):\n'
     '            longest = word\n    return longest\n'),
    ('code-go', 'Add a check that `b` is not zero and return the whole program.',
     'package main\n\nimport "fmt"\n\nfunc divide(a, b float64) float64 {\n\treturn a / b\n}\n\nfunc main() {\n'
     '\tfmt.Println(divide(10, 4))\n\tfmt.Println(divide(1, 3))\n}\n'),
    ('code-css', 'Change the color of all headings to navy and return the whole style sheet.',
     'body {\n  font-family: Georgia, serif;\n  margin: 2em auto;\n  max-width: 40em;\n}\nh1 {\n  color: black;\n'
     '  font-size: 2em;\n}\nh2 {\n  color: black;\n  font-size: 1.5em;\n}\na:hover {\n'
     '  text-decoration: underline;\n}\n'),
    ('code-print', 'Remove all print statements and return the whole function.',
     'def load_settings(path):\n    print("loading", path)\n    settings = {}\n    with open(path) as file:\n'
     '        for line in file:\n            line = line.strip()\n            if not line or line.startswith("#"):\n'
     '                print("skipping", line)\n                continue\n'
     '            key, value = line.split("=", 1)\n            settings[key.strip()] = value.strip()\n'
     '    return settings\n'),
    ('code-shell', 'Replace /tmp/backup by /var/backup everywhere and return the whole script.',
     '#!/bin/sh\nset -e\nmkdir -p /tmp/backup\nfor file in /etc/*.conf; do\n  cp "$file" /tmp/backup/\ndone\n'
     'tar -czf /tmp/backup/conf.tar.gz /tmp/backup/*.conf\nrm /tmp/backup/*.conf\n'
     'echo "The backup is in /tmp/backup/conf.tar.gz"\n'),
    ('code-java', 'Add a getter for the field `year` and return the whole class.',
     'public class Book {\n    private final String title;\n    private final String author;\n'
     '    private final int year;\n\n    public Book(String title, String author, int year) {\n'
     '        this.title = title;\n        this.author = author;\n        this.year = year;\n    }\n\n'
     '    public String getTitle() {\n        return title;\n    }\n\n    public String getAuthor() {\n'
     '        return author;\n    }\n}\n'),
    # JSON to reformat.
    ('json-indent', 'Indent this JSON by two spaces.',
     '{"name":"Marta Kovac","age":34,"city":"Zagreb","languages":["Croatian","English","German"],"address":{'
     '"street":"Ilica 12","zip":"10000"},"active":true}'),
    ('json-compact', 'Write this JSON in one line.',
     '{\n  "id": 7,\n  "title": "Winter garden",\n  "tags": ["garden", "winter", "glass"],\n  "price": 129.5,\n'
     '  "in_stock": false,\n  "supplier": {\n    "name": "Glas Meyer",\n    "country": "Austria"\n  }\n}'),
    ('json-rename', 'Rename the key "cost" to "price" everywhere in this JSON.',
     '[\n  {"item": "apple", "cost": 0.4, "unit": "piece"},\n  {"item": "bread", "cost": 2.8, "unit": "loaf"},\n'
     '  {"item": "milk", "cost": 1.2, "unit": "litre"},\n  {"item": "rice", "cost": 1.9, "unit": "kilogram"},\n'
     '  {"item": "eggs", "cost": 2.5, "unit": "dozen"}\n]'),
    ('json-add', 'Add the field "country": "France" to every object of this JSON.',
     '[\n  {"city": "Paris", "population": 2102650},\n  {"city": "Lyon", "population": 522250},\n'
     '  {"city": "Marseille", "population": 873076},\n  {"city": "Toulouse", "population": 504078},\n'
     '  {"city": "Nice", "population": 348085}\n]'),
    ('json-remove', 'Remove the key "internal" from every object and print the JSON again.',
     '{"users": [{"name": "lena", "mail": "lena@example.org", "internal": 1}, {"name": "omar", "mail": '
     '"omar@example.org", "internal": 2}, {"name": "yuki", "mail": "yuki@example.org", "internal": 3}]}'),
    ('json-csv', 'Turn these lines into a JSON list with the keys name, country and year.',
     'name,country,year\nAlhambra,Spain,1238\nTaj Mahal,India,1648\nOpera House,Australia,1973\n'
     'Hagia Sophia,Turkey,537\nMachu Picchu,Peru,1450\n'),
    ('json-yaml', 'Write this JSON as YAML.',
     '{"server": {"host": "localhost", "port": 8080, "workers": 4}, "database": {"url": '
     '"postgres://localhost/shop", "pool": 10}, "logging": {"level": "info", "file": "/var/log/shop.log"}}'),
    ('json-sort', 'Print this JSON again with its objects in the opposite order.',
     '[\n  {"step": 1, "do": "wash the potatoes"},\n  {"step": 2, "do": "peel the potatoes"},\n'
     '  {"step": 3, "do": "cut the potatoes into cubes"},\n  {"step": 4, "do": "boil the potatoes"}\n]'),
    ('json-quotes', 'Make this valid JSON: replace the single quotes by double quotes.',
     "{'title': 'The quiet valley', 'chapters': ['The road', 'The mill', 'The winter', 'The letter'], 'pages': "
     "312, 'author': {'first': 'Elsa', 'last': 'Brandt'}}"),
    ('json-numbers', 'Print this JSON again with all prices increased by one.',
     '{"menu": [{"dish": "soup", "price": 5}, {"dish": "salad", "price": 7}, {"dish": "pasta", "price": 9}, '
     '{"dish": "steak", "price": 19}, {"dish": "cake", "price": 4}]}'),
    ('json-flatten', 'Print only the inner object "settings" of this JSON.',
     '{"version": 3, "settings": {"theme": "dark", "font": "Inter", "size": 14, "wrap": true, "tabs": 4, '
     '"rulers": [80, 100], "autosave": "onFocusChange"}, "checksum": "9f3a"}'),
    ('json-repeat', 'Repeat this JSON exactly.',
     '{"order": 88123, "lines": [{"sku": "A-100", "qty": 2, "color": "red"}, {"sku": "B-220", "qty": 1, "color": '
     '"green"}, {"sku": "C-340", "qty": 5, "color": "blue"}], "ship_to": "12 Mill Lane, Oxford"}'),
    # The first 36 left 16, so these were added, still before anything was measured.
    ('code-config', 'Print this configuration again with the port 9090 instead of 8080.',
     '[server]\nhost = 0.0.0.0\nport = 8080\nworkers = 4\ntimeout = 30\n\n[cache]\nenabled = true\nsize = 512\n'
     'path = /var/cache/app\n\n[log]\nlevel = info\nfile = /var/log/app.log\n'),
    ('code-html', 'Write this page again with the title "Our garden".',
     '<!DOCTYPE html>\n<html>\n<head>\n  <title>My garden</title>\n  <link rel="stylesheet" href="style.css">\n'
     '</head>\n<body>\n  <h1>Welcome</h1>\n  <p>Here you find pictures of roses and of tulips.</p>\n'
     '  <a href="roses.html">Roses</a>\n  <a href="tulips.html">Tulips</a>\n</body>\n</html>\n'),
    ('code-makefile', 'Repeat this makefile exactly.',
     'CC = gcc\nCFLAGS = -O2 -Wall\nOBJECTS = main.o parser.o lexer.o\n\nprogram: $(OBJECTS)\n'
     '\t$(CC) -o program $(OBJECTS)\n\n%.o: %.c\n\t$(CC) $(CFLAGS) -c $<\n\nclean:\n\trm -f program $(OBJECTS)\n'),
    ('code-rust', 'Repeat this function exactly, and say in one sentence what it does.',
     'fn is_palindrome(text: &str) -> bool {\n    let letters: Vec<char> = text\n        .chars()\n'
     '        .filter(|c| c.is_alphanumeric())\n        .map(|c| c.to_ascii_lowercase())\n        .collect();\n'
     '    let mut reversed = letters.clone();\n    reversed.reverse();\n    letters == reversed\n}\n'),
    ('code-dockerfile', 'Write this Dockerfile again for Python 3.12.',
     'FROM python:3.11-slim\nWORKDIR /app\nCOPY requirements.txt .\nRUN pip install --no-cache-dir -r '
     'requirements.txt\nCOPY . .\nEXPOSE 8000\nCMD ["python", "-m", "uvicorn", "main:app", "--host", "0.0.0.0"]\n'),
    ('code-table', 'Write this table again with the rows in the opposite order.',
     '| River | Country | Length |\n|---|---|---|\n| Loire | France | 1012 km |\n| Ebro | Spain | 930 km |\n'
     '| Po | Italy | 652 km |\n| Thames | England | 346 km |\n| Shannon | Ireland | 360 km |\n'),
    ('json-status', 'Print this JSON again with "status": "closed".',
     '{"ticket": 4711, "title": "The printer on the second floor does not print", "reporter": "Paula Stein", '
     '"status": "open", "priority": "high", "labels": ["printer", "office", "hardware"]}'),
    ('json-list', 'Print the list "stations" of this JSON.',
     '{"line": "U4", "color": "green", "stations": ["Huetteldorf", "Ober St. Veit", "Unter St. Veit", '
     '"Braunschweiggasse", "Hietzing", "Schoenbrunn", "Meidling"], "night": false}'),
    ('json-schema', 'Repeat this JSON schema and make the field "email" required.',
     '{\n  "type": "object",\n  "properties": {\n    "name": {"type": "string"},\n    "email": {"type": "string"},\n'
     '    "age": {"type": "integer", "minimum": 0}\n  },\n  "required": ["name"]\n}'),
    ('json-event', 'Print this JSON again with the year 2026 instead of 2025.',
     '{"event": "Open day", "date": "2025-06-14", "place": "Town hall", "speakers": [{"name": "Jonas Lind", '
     '"topic": "Bicycle roads"}, {"name": "Mira Patel", "topic": "Trees for the market square"}], "free": true}'),
]
