"""Texts that a hostile client sends: small ones that nest or repeat without end. `soak.py` sends them to every door."""


def ssap(kind, parameters=""):
    return (f"<SSAP_message><transaction_type>{kind}</transaction_type><message_type>REQUEST</message_type>"
            f"<transaction_id>1</transaction_id><node_id>x</node_id><space_id>X</space_id>{parameters}</SSAP_message>").encode()


def texts():
    """SPARQL that blinds a scanner or nests without end."""
    deep, wide = 3000, 20_000
    return [
        "ASK { #\r" + "{" * deep + "}" * deep + " }",
        "ASK { #\r FILTER(" + "(" * wide + "1" + ")" * wide + ") }",
        "ASK { FILTER(1<" + "(" * wide + "1" + ")" * wide + ">2) }",
        "PREFIX a: <urn:> ASK { FILTER(a:x\\' = " + "(" * wide + "1" + ")" * wide + ") }",
        "ASK { " + "<<" * 15_000 + " }",
        "ASK { ?s " + "!(" * wide + "<urn:p>" + ")" * wide + " ?o }",
        "SELECT * { " + "{ ?s ?p ?o } UNION " * 5000 + "{ ?s ?p ?o } }",
        "SELECT * { ?s " + "/".join(["<urn:p>*"] * 2000) + " ?o }",
    ]


def documents():
    """RDF that nests or repeats without end."""
    pairs = [('{"urn:p":', "}"), ('{"@set":[', "]}"), ('{"@list":[', "]}"), ('{"@reverse":{"urn:p":', "}}"), ('{"@graph":[', "]}")]
    for before, after in pairs:
        yield "application/ld+json", before * 5000 + "1" + after * 5000
    rdf = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    yield "application/rdf+xml", rdf + "<rdf:Description " + " ".join(f'a{n}="x"' for n in range(50_000)) + "/></rdf:RDF>"
    yield "application/rdf+xml", rdf + "<rdf:Description " + " ".join(f'xmlns:a{n}="x"' for n in range(50_000)) + "/></rdf:RDF>"
    yield "application/rdf+xml", rdf + "<a>" * 20_000
    yield "text/turtle", "<urn:s> <urn:p> " + "( " * 50_000 + ")" * 50_000 + " ."
    yield "text/turtle", "<urn:s> <urn:p> " + "[ <urn:p> " * 50_000
    yield "application/trig", "{ " * 50_000
