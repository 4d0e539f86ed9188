"""`odradek web`: a page that shows transactions, and whom they keep waiting.

The page is a process of its own and a client like any other. It changes nothing, it cannot hold the
loop of a broker, and it is still there when a broker is not.

    Admin <- Poller -> Board -> PageServer -> browsers

`Poller` asks the brokers at intervals, once for all browsers. `Board` has what is to be shown, as
rows with numbers of their changes. `PageServer` sends each browser the rows that have changed since
it was sent some last. The files of `page/` draw them; nothing builds these files.

A broker sends no events. So the histories of transactions are concluded from looks that follow each
other (`odradek.client.cli.txn_events`), and are kept for an hour.
"""
