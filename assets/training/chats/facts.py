"""Small knowledge the templates ask about. Plain tables."""

from __future__ import annotations

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon", "England": "London",
    "Ireland": "Dublin", "Austria": "Vienna", "Switzerland": "Bern", "Poland": "Warsaw", "Russia": "Moscow",
    "Ukraine": "Kyiv", "Greece": "Athens", "Turkey": "Ankara", "Egypt": "Cairo", "Kenya": "Nairobi", "Japan": "Tokyo",
    "China": "Beijing", "India": "New Delhi", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Australia": "Canberra",
    "Canada": "Ottawa", "Mexico": "Mexico City", "Brazil": "Brasilia", "Argentina": "Buenos Aires", "Chile": "Santiago",
    "Peru": "Lima", "Cuba": "Havana", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki",
    "Denmark": "Copenhagen", "Iceland": "Reykjavik", "Hungary": "Budapest", "Romania": "Bucharest", "Bulgaria": "Sofia",
    "Belgium": "Brussels", "Iran": "Tehran", "Iraq": "Baghdad", "Scotland": "Edinburgh", "Wales": "Cardiff",
    "Croatia": "Zagreb", "Serbia": "Belgrade", "Slovakia": "Bratislava", "Slovenia": "Ljubljana", "Estonia": "Tallinn",
    "Latvia": "Riga", "Lithuania": "Vilnius", "Morocco": "Rabat", "Nigeria": "Abuja", "Ghana": "Accra",
    "Ethiopia": "Addis Ababa", "Colombia": "Bogota", "Venezuela": "Caracas", "Ecuador": "Quito", "Indonesia": "Jakarta",
    "Malaysia": "Kuala Lumpur", "Pakistan": "Islamabad", "Nepal": "Kathmandu", "Mongolia": "Ulaanbaatar",
    "the United States": "Washington, D.C.", "South Korea": "Seoul", "the Netherlands": "Amsterdam",
    "the Czech Republic": "Prague", "New Zealand": "Wellington", "Saudi Arabia": "Riyadh", "the Philippines": "Manila",
}  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
OPPOSITES = (
    ("hot", "cold"), ("big", "small"), ("happy", "sad"), ("fast", "slow"), ("old", "new"), ("young", "old"),
    ("high", "low"), ("long", "short"), ("good", "bad"), ("light", "dark"), ("open", "closed"), ("full", "empty"),
    ("rich", "poor"), ("strong", "weak"), ("early", "late"), ("easy", "difficult"), ("hard", "soft"), ("loud", "quiet"),
    ("wet", "dry"), ("clean", "dirty"), ("near", "far"), ("left", "right"), ("up", "down"), ("in", "out"),
    ("day", "night"), ("black", "white"), ("love", "hate"), ("win", "lose"), ("buy", "sell"), ("give", "take"),
    ("push", "pull"), ("true", "false"), ("thick", "thin"), ("wide", "narrow"), ("deep", "shallow"), ("brave", "afraid"),
    ("cheap", "expensive"), ("first", "last"), ("begin", "end"), ("summer", "winter"), ("heavy", "light"),
    ("awake", "asleep"), ("alive", "dead"), ("sweet", "sour"), ("smooth", "rough"), ("sharp", "blunt"), ("north", "south"),
    ("east", "west"), ("friend", "enemy"), ("question", "answer"), ("always", "never"), ("inside", "outside"),
    ("above", "below"), ("before", "after"), ("all", "none"), ("arrive", "leave"), ("ask", "answer"), ("beautiful", "ugly"),
    ("better", "worse"), ("boring", "interesting"), ("careful", "careless"), ("clever", "stupid"), ("come", "go"),
    ("cry", "laugh"), ("dangerous", "safe"), ("different", "same"), ("even", "odd"), ("everything", "nothing"),
    ("fat", "thin"), ("float", "sink"), ("foolish", "wise"), ("forget", "remember"), ("forwards", "backwards"),
    ("front", "back"), ("future", "past"), ("guilty", "innocent"), ("healthy", "sick"), ("heaven", "hell"),
    ("huge", "tiny"), ("increase", "decrease"), ("kind", "cruel"), ("large", "small"), ("little", "big"),
    ("lazy", "hardworking"), ("lend", "borrow"),
    ("male", "female"), ("man", "woman"), ("more", "less"), ("most", "least"), ("many", "few"),
    ("natural", "artificial"),
    ("over", "under"), ("peace", "war"), ("possible", "impossible"), ("present", "absent"), ("public", "private"),
    ("raise", "lower"), ("right", "wrong"), ("save", "spend"), ("shy", "bold"), ("simple", "complicated"),
    ("sit", "stand"), ("start", "stop"), ("success", "failure"), ("tall", "short"), ("teach", "learn"), ("top", "bottom"),
    ("warm", "cool"), ("whole", "part"), ("with", "without"), ("yes", "no"), ("boy", "girl"), ("king", "queen"),
    ("attack", "defend"), ("accept", "refuse"), ("agree", "disagree"), ("allow", "forbid"), ("appear", "disappear"),
    ("build", "destroy"), ("break", "repair"), ("catch", "throw"), ("common", "rare"), ("enter", "exit"),
    ("freeze", "melt"), ("hope", "despair"), ("join", "separate"), ("major", "minor"), ("maximum", "minimum"),
    ("morning", "evening"),
    ("polite", "rude"), ("proud", "ashamed"), ("visible", "invisible"),
    ("victory", "defeat"), ("together", "apart"),
    ("tight", "loose"), ("straight", "crooked"), ("sunrise", "sunset"), ("truth", "lie"), ("useful", "useless"),
    ("parent", "child"), ("positive", "negative"), ("fresh", "stale"), ("raw", "cooked"), ("generous", "mean"),
)  # fmt: skip
NAMES = (
    "Anna", "Ben", "Carla", "David", "Emma", "Finn", "Grace", "Hugo", "Iris", "Jack", "Kate", "Leo", "Mia", "Noah", "Olga",
    "Paul", "Rosa", "Sam", "Tina", "Victor", "Lena", "Max", "Nina", "Oscar", "Peter", "Sara", "Tom", "Zoe", "Alice",
    "Bruno", "Chloe", "Daniel", "Ella", "Felix", "Hannah", "Ivan", "Julia", "Karl", "Laura", "Martin", "Nora", "Otto",
    "Paula", "Robin", "Sofia", "Theo", "Ursula", "Vera", "Walter", "Yara",
)  # fmt: skip
ANIMALS = ("dog", "cat", "rabbit", "bird", "horse", "fish", "hamster", "parrot", "turtle", "pony")
CITIES = (
    "London",
    "Berlin",
    "Paris",
    "Rome",
    "Oslo",
    "Madrid",
    "Boston",
    "Vienna",
    "Dublin",
    "Lisbon",
    "Tokyo",
    "Prague",
)
FOODS = (
    "pizza",
    "soup",
    "pasta",
    "rice",
    "salad",
    "cake",
    "bread",
    "fish",
    "cheese",
    "chocolate",
    "apples",
    "pancakes",
)
JOBS = (
    "teacher",
    "nurse",
    "cook",
    "farmer",
    "driver",
    "baker",
    "doctor",
    "painter",
    "singer",
    "writer",
    "pilot",
    "builder",
)
THINGS_OF_COLOUR = {
    "red": "A tomato", "orange": "An orange", "yellow": "A lemon", "green": "Grass", "blue": "The sky",
    "purple": "An eggplant", "pink": "A flamingo", "brown": "Chocolate", "black": "Coal", "white": "Snow",
    "gray": "An elephant",
}  # fmt: skip
