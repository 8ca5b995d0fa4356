"""Writes train.jsonl and held_out.jsonl: messages to a shop, what a reply has to mention, and a reply by a person.

The names, orders and products are made up. A held-out row has a situation that train.jsonl has too, with a product,
a name and an order of its own. Run it as `python make_data.py`; the same files come out each time.
"""

import json
import random
from pathlib import Path

SITUATIONS = (
    (
        "late",
        "My {product} from order {order} should have been here on {day}. It is still not here. {mood}",
        "I am sorry that your {product} is late. Order {order} left us yesterday, and the tracking shows that it "
        "will reach you on {later}. Thank you for your patience.",
        ("{order}", "{later}", "tracking"),
        "Shipped yesterday; tracking says {later}.",
    ),
    (
        "broken",
        "The {product} of order {order} arrived broken. {mood}",
        "I am sorry that your {product} arrived broken. A replacement for order {order} leaves us today and will be "
        "with you on {later}. You are welcome to keep the broken one.",
        ("{order}", "replacement", "{later}"),
        "Send a replacement today, arrives {later}; the broken one need not come back.",
    ),
    (
        "wrong item",
        "I ordered a {product} (order {order}) and got something else. {mood}",
        "I am sorry about our mistake with order {order}. Your {product} is on its way, and a free return label is "
        "attached. You will be glad to have it by {later}.",
        ("{order}", "return label", "{later}"),
        "Our mistake; right item arrives {later}; attach a free return label.",
    ),
    (
        "refund",
        "I sent the {product} back two weeks ago, order {order}. Where is my money? {mood}",
        "Thank you for your patience. The refund for order {order} was approved today and will be in your account "
        "within 5 days. I am happy to confirm it by mail.",
        ("{order}", "refund", "5 days"),
        "Refund approved today; 5 days to the account.",
    ),
    (
        "cancel",
        "Please cancel order {order}, I no longer need the {product}. {mood}",
        "Order {order} is cancelled, as you wished, and nothing will be charged. You are always welcome to order the "
        "{product} again.",
        ("{order}", "cancelled"),
        "Not shipped yet; cancelled, nothing charged.",
    ),
    (
        "address",
        "I moved! Order {order} must go to my new address, 12 Mill Lane. {mood}",
        "Thank you for telling us in time. Order {order} with your {product} now goes to 12 Mill Lane and will arrive "
        "on {later}. Best wishes for your new home.",
        ("{order}", "12 Mill Lane", "{later}"),
        "Address changed; arrives {later}.",
    ),
    (
        "invoice",
        "I need an invoice for order {order} for my taxes. {mood}",
        "I am glad to help. The invoice for order {order} is attached, and it is also in your account under Invoices.",
        ("{order}", "invoice", "attached"),
        "Attach the invoice; also in the account under Invoices.",
    ),
    (
        "warranty",
        "My {product} (order {order}) stopped working after eight months. {mood}",
        "I am sorry that your {product} stopped working. It is under warranty for two years, so the repair for order "
        "{order} is free. A prepaid label is attached.",
        ("{order}", "warranty", "free"),
        "Two years of warranty; free repair, attach a prepaid label.",
    ),
)
PRODUCTS = (
    "kettle",
    "desk lamp",
    "backpack",
    "hair dryer",
    "toaster",
    "headset",
    "rain jacket",
    "coffee grinder",
)
NAMES = (
    "Adams",
    "Brown",
    "Chen",
    "Diaz",
    "Evans",
    "Fischer",
    "Gupta",
    "Haddad",
    "Ito",
    "Jones",
    "Kaya",
    "Lopez",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
MOODS = (
    "This is really disappointing.",
    "Can you help me?",
    "I have been waiting for days and nobody answers!",
    "Thanks in advance.",
    "I want to know what you will do about it.",
)


def main() -> None:
    rng = random.Random(2024)
    here = Path(__file__).parent
    orders = rng.sample(range(10_000, 99_999), 128)
    pairs = [(situation, product) for situation in SITUATIONS for product in PRODUCTS]
    rng.shuffle(pairs)
    held_out = {f"{situation[0]} {product}" for situation, product in pairs[:16]}
    rows: dict[str, list[dict[str, object]]] = {"train": [], "held_out": []}
    for situation, product in pairs + pairs:
        kind, message, reply, keywords, known = situation
        filled = {
            "product": product,
            "order": str(orders.pop()),
            "day": rng.choice(DAYS),
            "later": rng.choice(DAYS),
            "mood": rng.choice(MOODS),
        }
        name = rng.choice(NAMES)
        side = "held_out" if f"{kind} {product}" in held_out else "train"
        if side == "held_out" and len(rows[side]) == 16:
            continue
        prompt = f"{message.format(**filled)}\n{name}\n\n(What we know: {known.format(**filled)})"
        rows[side].append(
            {
                "prompt": prompt,
                "keywords": [keyword.format(**filled) for keyword in keywords],
                "reference": f"Dear customer {name},\n{reply.format(**filled)}\nKind regards,\nYour shop",
            }
        )
    for side, some in rows.items():
        with (here / f"{side}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in some)


if __name__ == "__main__":
    main()
