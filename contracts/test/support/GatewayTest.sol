// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {DevUsdc} from "../../src/DevUsdc.sol";
import {SettlementGateway} from "../../src/SettlementGateway.sol";
import {Authorization, SkipReason} from "../../src/gateway/Authorizations.sol";
import {Batches} from "../../src/gateway/Batches.sol";
import {BurnIntent, TransferSpec} from "../../src/gateway/BurnIntent.sol";
import {Account, Domain, Signer} from "./Signer.sol";
import {vm} from "./Vm.sol";

/// @title GatewayTest
///
/// @notice A gateway on a chain that looks like Arc's test network: USDC at its address, and the system's own log.
abstract contract GatewayTest {
    using Signer for Authorization;
    using Signer for BurnIntent;

    uint256 internal constant CHAIN_ID = 5042002;
    uint256 internal constant NOW = 1_800_000_000;
    uint256 internal constant BLOCK = 1_000;
    uint256 internal constant WITHDRAWAL_DELAY = 100;
    uint256 internal constant USDC = 1e6;
    address internal constant USDC_ADDRESS = 0x3600000000000000000000000000000000000000;
    bytes32 internal constant RECEIPT_ROOT = keccak256("the receipts of this batch");

    DevUsdc internal usdc = DevUsdc(USDC_ADDRESS);
    SettlementGateway internal gateway;

    address internal owner = _named("owner");
    address internal pauser = _named("pauser");
    address internal blacklister = _named("blacklister");
    Account internal relayer = Signer.account("relayer");
    Account internal seller = Signer.account("seller");
    Account internal alice = Signer.account("alice");
    Account internal bob = Signer.account("bob");
    Account internal mallory = Signer.account("mallory");

    function setUp() public virtual {
        vm.chainId(CHAIN_ID);
        vm.warp(NOW);
        vm.roll(BLOCK);
        vm.etch(USDC_ADDRESS, _deploy("DevUsdc", abi.encode(blacklister)).code);
        vm.etch(address(usdc.SYSTEM_LOG()), _deploy("ArcSystemLog", abi.encode(USDC_ADDRESS)).code);
        gateway = _newGateway();
    }

    function _newGateway() internal returns (SettlementGateway) {
        return _newGateway(USDC_ADDRESS, WITHDRAWAL_DELAY);
    }

    function _newGateway(address token, uint256 withdrawalDelay) internal returns (SettlementGateway) {
        bytes memory arguments = abi.encode(token, withdrawalDelay, owner, pauser, relayer.addr);
        return SettlementGateway(_deploy("SettlementGateway", arguments));
    }

    /// Deploys from the compiler's output. Written as `new`, the code would be compiled into every test again.
    function _deploy(string memory name, bytes memory arguments) internal returns (address deployed) {
        bytes memory code = bytes.concat(vm.getCode(name), arguments);
        assembly {
            deployed := create(0, add(code, 32), mload(code))
        }
        vm.assertTrue(deployed != address(0), "the contract could not be deployed");
    }

    function _named(string memory name) internal returns (address) {
        return Signer.account(name).addr;
    }

    // Money in

    /// Gives an account test money in its wallet and lets the gateway take it.
    function _fund(Account memory account, uint256 value) internal {
        usdc.faucet(account.addr, value);
        vm.prank(account.addr);
        usdc.approve(address(gateway), type(uint256).max);
    }

    function _deposit(Account memory account, uint256 value) internal {
        _fund(account, value);
        vm.prank(account.addr);
        gateway.deposit(USDC_ADDRESS, value);
    }

    // Payments

    function _gatewayDomain() internal view returns (Domain memory) {
        return Domain("GatewayWalletBatched", "1", CHAIN_ID, address(gateway));
    }

    function _usdcDomain() internal pure returns (Domain memory) {
        return Domain("USDC", "2", CHAIN_ID, USDC_ADDRESS);
    }

    /// An account's nonces as the service makes them: a key of 192 bits, then a sequence of 64.
    function _nonce(address account, uint64 sequence) internal pure returns (bytes32) {
        uint256 key = uint192(uint256(keccak256(abi.encode(account, "epoch 0"))));
        return bytes32((key << 64) | sequence);
    }

    /// A payment that is good now, not signed yet.
    function _payment(address from, address to, uint256 value, uint64 sequence)
        internal
        view
        returns (Authorization memory row)
    {
        row.from = from;
        row.to = to;
        row.value = value;
        row.validAfter = block.timestamp - 600;
        row.validBefore = block.timestamp + 8 days;
        row.nonce = _nonce(from, sequence);
    }

    /// A payment that is good now.
    function _pay(Account memory from, address to, uint256 value, uint64 sequence)
        internal
        view
        returns (Authorization memory)
    {
        return _payment(from.addr, to, value, sequence).signed(from.key, _gatewayDomain());
    }

    function _settle(Authorization[] memory rows) internal {
        uint64 batchId = gateway.lastBatchId() + 1;
        vm.prank(relayer.addr);
        gateway.settleBatch(batchId, RECEIPT_ROOT, rows);
    }

    function _settle(Authorization memory row) internal {
        _settle(_rows(row));
    }

    /// Settles the row alone and sees that it is skipped for this reason, changes nothing and keeps its nonce.
    function _assertSkipped(Authorization memory row, SkipReason reason, uint256 required, uint256 found) internal {
        uint256 payerBefore = _total(row.from);
        uint256 payeeBefore = _total(row.to);
        bool usedBefore = gateway.authorizationState(row.from, row.nonce);
        uint64 batchId = gateway.lastBatchId() + 1;

        vm.expectEmit(address(gateway));
        emit Batches.AuthorizationSkipped(batchId, row.from, row.nonce, reason, required, found);
        _settle(row);

        vm.assertEq(_total(row.from), payerBefore, "a skipped row must not debit");
        vm.assertEq(_total(row.to), payeeBefore, "a skipped row must not credit");
        vm.assertEq(gateway.authorizationState(row.from, row.nonce), usedBefore);
    }

    function _rows(Authorization memory a) internal pure returns (Authorization[] memory rows) {
        rows = new Authorization[](1);
        rows[0] = a;
    }

    function _rows(Authorization memory a, Authorization memory b)
        internal
        pure
        returns (Authorization[] memory rows)
    {
        rows = new Authorization[](2);
        (rows[0], rows[1]) = (a, b);
    }

    function _rows(Authorization memory a, Authorization memory b, Authorization memory c)
        internal
        pure
        returns (Authorization[] memory rows)
    {
        rows = new Authorization[](3);
        (rows[0], rows[1], rows[2]) = (a, b, c);
    }

    // Money out

    /// An intent that is good now, not signed yet.
    function _intent(address depositor, address recipient, uint256 value, bytes32 salt)
        internal
        view
        returns (BurnIntent memory intent)
    {
        intent.maxBlockHeight = block.number + 100;
        intent.maxFee = 2_010_000;
        intent.spec = TransferSpec({
            version: 1,
            sourceDomain: uint32(CHAIN_ID),
            destinationDomain: uint32(CHAIN_ID),
            sourceContract: _padded(address(gateway)),
            destinationContract: _padded(address(gateway)),
            sourceToken: _padded(USDC_ADDRESS),
            destinationToken: _padded(USDC_ADDRESS),
            sourceDepositor: _padded(depositor),
            destinationRecipient: _padded(recipient),
            sourceSigner: _padded(depositor),
            destinationCaller: 0,
            value: value,
            salt: salt,
            hookData: ""
        });
    }

    function _instantWithdraw(BurnIntent memory intent, uint256 key) internal {
        bytes memory signature = intent.intentSignature(key);
        vm.prank(relayer.addr);
        gateway.instantWithdraw(intent, signature);
    }

    function _initiateWithdrawal(Account memory account, uint256 value) internal {
        vm.prank(account.addr);
        gateway.initiateWithdrawal(USDC_ADDRESS, value);
    }

    function _withdraw(Account memory account) internal {
        vm.prank(account.addr);
        gateway.withdraw(USDC_ADDRESS);
    }

    function _padded(address account) internal pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    // Looking

    function _available(address account) internal view returns (uint256) {
        return gateway.availableBalance(USDC_ADDRESS, account);
    }

    function _withdrawing(address account) internal view returns (uint256) {
        return gateway.withdrawingBalance(USDC_ADDRESS, account);
    }

    function _total(address account) internal view returns (uint256) {
        return gateway.totalBalance(USDC_ADDRESS, account);
    }

    function _pause() internal {
        vm.prank(pauser);
        gateway.pause();
    }

    /// Folds any number into a range, ends included.
    function _bound(uint256 value, uint256 least, uint256 most) internal pure returns (uint256) {
        return least + value % (most - least + 1);
    }
}
