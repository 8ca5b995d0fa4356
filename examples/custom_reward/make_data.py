"""Writes train.jsonl and held_out.jsonl: words to write a sentence about. The same files come out each time."""

import json
import random
from pathlib import Path

WORDS = """otter fjord lighthouse bicycle teapot violin glacier market lantern orchard harbour compass piano meadow
castle river bakery mountain library garden train bridge island forest kitchen umbrella window clock pencil blanket
candle ladder mirror pillow bottle basket button carpet drawer engine feather guitar hammer jacket kettle lemon magnet
needle onion parrot rabbit saddle ticket tunnel valley wagon walnut whistle zebra anchor beetle cactus donkey falcon
ginger hedgehog iceberg jungle kayak lobster mustard"""
HELD_OUT = 12


def main() -> None:
    words = WORDS.split()
    random.Random(7).shuffle(words)
    here = Path(__file__).parent
    for name, some in (("held_out", words[:HELD_OUT]), ("train", words[HELD_OUT:])):
        rows = [{"prompt": f"Write one short sentence about: {word}", "word": word} for word in some]
        (here / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
