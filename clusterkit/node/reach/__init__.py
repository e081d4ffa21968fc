"""What the network lets through between this host and others: listens, connects, measures.

Sent on its own and run from memory (clusterkit/between/program.py): no file of it ever lies on the host.

    commands     one JSON line in, one JSON line out; ends with its stdin
    answering    the thread that listens and answers
    connecting   many connections at once, each with its outcome and what the kernel knows of it
    datagrams    UDP that must not be fragmented
    streaming    one TCP stream as fast as it goes
"""
